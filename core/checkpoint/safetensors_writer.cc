#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/safetensors_header.h"
#include "core/digest/crc32.h"
#include "core/finite/finite_check.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "values are written as they lie in memory");

absl::Status CheckWritable(const std::vector<TensorInfo>& infos) {
  std::set<std::string> names = {"__metadata__"};
  for (const TensorInfo& info : infos) {
    if (!names.insert(info.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "two tensors, or one with a reserved name: ", info.name));
    }
    if (!CanStandInHeader(info.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", absl::CHexEscape(info.name),
                       " cannot be stored: its name is no UTF-8"));
    }
    if (DtypeName(info.dtype).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", info.name, " cannot be stored: it must be defined, dense ",
          "and one of ", KnownDtypeNames()));
    }
  }
  return absl::OkStatus();
}

std::vector<SafetensorsEntry> Layout(std::vector<TensorInfo> infos) {
  std::vector<SafetensorsEntry> entries;
  uint64_t at = 0;
  for (TensorInfo& info : infos) {
    uint64_t end = c10::elementSize(info.dtype);
    for (int64_t size : info.sizes) end *= static_cast<uint64_t>(size);
    end += at;
    entries.push_back(
        {std::move(info.name), info.dtype, std::move(info.sizes), at, end});
    at = end;
  }
  return entries;
}

// The length of the header, then the header.
std::string Beginning(SafetensorsHeader header,
                      const std::vector<uint32_t>& checksums) {
  AddChecksums(checksums, &header);
  const std::string json = FormatSafetensorsHeader(header);
  const uint64_t length = json.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof(length));
  return text + json;
}

// Whether any of these floating-point numbers, given by their bits, has an
// exponent of ones.
template <typename Bits>
bool AnyHasExponent(const char* data, uint64_t bytes, Bits exponent) {
  const Bits* const values = reinterpret_cast<const Bits*>(data);
  Bits any = 0;
  for (uint64_t i = 0; i < bytes / sizeof(Bits); ++i) {
    any |= static_cast<Bits>((values[i] & exponent) == exponent);
  }
  return any != 0;
}

// Whether there is an infinite or NaN value; false for dtypes that have none.
bool AnyIsNotFinite(at::ScalarType dtype, const char* data, uint64_t bytes) {
  switch (dtype) {
    case at::kFloat:
    case at::kComplexFloat:
      return AnyHasExponent<uint32_t>(data, bytes, 0x7f800000);
    case at::kDouble:
    case at::kComplexDouble:
      return AnyHasExponent<uint64_t>(data, bytes, 0x7ff0000000000000);
    case at::kBFloat16:
      return AnyHasExponent<uint16_t>(data, bytes, 0x7f80);
    case at::kHalf:
      return AnyHasExponent<uint16_t>(data, bytes, 0x7c00);
    default:
      return false;
  }
}

// 0 for a dtype that cannot be stored, which Begin refuses.
size_t ElementWidth(const TensorInfo& info) {
  return DtypeName(info.dtype).empty() ? 0 : c10::elementSize(info.dtype);
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path,
                                     SafetensorsMetadata metadata)
    : path_(std::move(path)) {
  header_.metadata = std::move(metadata);
}

bool SafetensorsWriter::ComesBefore(const TensorInfo& a,
                                    const TensorInfo& b) const {
  return std::forward_as_tuple(ElementWidth(b), a.name) <
         std::forward_as_tuple(ElementWidth(a), b.name);
}

absl::Status SafetensorsWriter::Begin(std::vector<TensorInfo> infos) {
  TANDEM_RETURN_IF_ERROR(CheckWritable(infos));
  header_.entries = Layout(std::move(infos));
  // Checksums of what has not come yet take as much room.
  const std::string beginning =
      Beginning(header_, std::vector<uint32_t>(header_.entries.size()));
  if (beginning.size() > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot write ", path_, ": a header of ", beginning.size(),
        " bytes is more than the format allows: ", kMaxSafetensorsHeaderBytes));
  }
  TANDEM_ASSIGN_OR_RETURN(file_, AtomicFile::Create(path_));
  return file_->Append(beginning);
}

absl::Status SafetensorsWriter::Add(const at::Tensor& values) {
  CHECK(file_ != nullptr) << "Add before Begin";
  CHECK_LT(checksums_.size(), header_.entries.size());
  TANDEM_RETURN_IF_ERROR(
      FaultPoint("write_tensor", static_cast<int64_t>(checksums_.size())));
  const SafetensorsEntry& entry = header_.entries[checksums_.size()];
  CHECK(values.sizes() == entry.shape && values.scalar_type() == entry.dtype)
      << entry.name;
  // No copy when it is already so.
  const at::Tensor bytes = HostValues(values);
  const char* const data = static_cast<const char*>(bytes.const_data_ptr());
  const bool checked = is_finite_ && is_finite_(entry.name);
  uint32_t crc = 0;
  for (uint64_t at = 0; at < entry.bytes(); at += kCrc32PieceBytes) {
    const uint64_t size = std::min(kCrc32PieceBytes, entry.bytes() - at);
    crc = Crc32(crc, data + at, size);
    if (checked && AnyIsNotFinite(entry.dtype, data + at, size)) {
      return absl::OutOfRangeError(
          absl::StrCat(entry.name, " has ", CountNonfinite(bytes)));
    }
    TANDEM_RETURN_IF_ERROR(file_->Append(data + at, size));
  }
  checksums_.push_back(crc);
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Commit() {
  CHECK(file_ != nullptr) << "Commit before Begin";
  CHECK_EQ(checksums_.size(), header_.entries.size());
  TANDEM_RETURN_IF_ERROR(
      file_->Overwrite(0, Beginning(std::move(header_), checksums_)));
  TANDEM_RETURN_IF_ERROR(FaultPoint("before_commit"));
  return file_->Commit();
}

absl::Status WriteSafetensors(const std::string& path,
                              const NamedTensors& tensors,
                              const SafetensorsMetadata& metadata) {
  SafetensorsWriter writer(path, metadata);
  TANDEM_RETURN_IF_ERROR(StreamTensors(tensors, writer));
  return writer.Commit();
}

}  // namespace tandem
