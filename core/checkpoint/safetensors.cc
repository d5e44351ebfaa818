#include "core/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/safetensors_header.h"
#include "core/digest/crc32.h"

namespace tandem {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "values are read as they lie in memory");

constexpr uint64_t kLengthBytes = sizeof(uint64_t);

constexpr char kAdvice[] =
    "; take another copy of it (or, after a change that was meant, leave "
    "tandem.crc32.* out of its metadata)";

}  // namespace

SafetensorsReader::SafetensorsReader(RegularFile file, Damage damage)
    : file_(std::move(file)), damage_(damage) {}

absl::Status SafetensorsReader::Bad(const std::string& why) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_.path(), " is not a usable safetensors file: ", why));
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path, Damage damage) {
  TANDEM_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(path));
  auto reader = std::unique_ptr<SafetensorsReader>(
      new SafetensorsReader(std::move(file), damage));
  TANDEM_RETURN_IF_ERROR(reader->ReadHeader());
  if (damage == Damage::kRefused) {
    TANDEM_RETURN_IF_ERROR(reader->VerifyHeader());
  }
  return reader;
}

absl::Status SafetensorsReader::ReadHeader() {
  const uint64_t file_bytes = file_.size();
  uint64_t length;
  if (file_bytes < kLengthBytes) {
    return Bad(absl::StrCat("only ", file_bytes, " bytes long"));
  }
  TANDEM_RETURN_IF_ERROR(file_.ReadAt(0, &length, kLengthBytes));
  if (length > kMaxSafetensorsHeaderBytes) {
    return Bad(absl::StrCat("its first 8 bytes ask for a header of ", length,
                            " bytes; the format allows ",
                            kMaxSafetensorsHeaderBytes));
  }
  if (length > file_bytes - kLengthBytes) {
    return Bad(absl::StrCat("its first 8 bytes ask for a header of ", length,
                            " bytes, it has ", file_bytes - kLengthBytes,
                            " (truncated?)"));
  }
  std::string json(length, '\0');
  TANDEM_RETURN_IF_ERROR(file_.ReadAt(kLengthBytes, json.data(), length));
  data_begin_ = kLengthBytes + length;
  const uint32_t header_crc =
      Crc32(Crc32(0, &length, kLengthBytes), json.data(), json.size());
  auto header = ParseSafetensorsHeader(json, file_bytes - data_begin_);
  if (!header.ok()) return Bad(std::string(header.status().message()));
  header_ = *std::move(header);
  auto checksums = TakeChecksums(&header_);
  if (checksums.ok()) {
    checksums_ = *std::move(checksums);
  } else {
    header_damage_ = absl::DataLossError(absl::StrCat(
        file_.path(), " is damaged: ", checksums.status().message(), kAdvice));
  }
  verified_.resize(entries().size());
  stated_checksum_ = header_crc;
  for (size_t i = 0; i < entries().size(); ++i) {
    entry_of_[entries()[i].name] = i;
    if (!checksums_.has_value()) continue;
    stated_checksum_ =
        CombineCrc32(stated_checksum_, (*checksums_)[i], entries()[i].bytes());
  }
  return absl::OkStatus();
}

std::optional<uint32_t> SafetensorsReader::StatedChecksum(
    const SafetensorsEntry& entry) const {
  if (!checksums_.has_value()) return std::nullopt;
  return (*checksums_)[&entry - entries().data()];
}

std::optional<uint32_t> SafetensorsReader::StatedChecksum() const {
  if (!checksums_.has_value()) return std::nullopt;
  return stated_checksum_;
}

const SafetensorsEntry* SafetensorsReader::Find(const std::string& name) const {
  const auto found = entry_of_.find(name);
  return found == entry_of_.end() ? nullptr : &entries()[found->second];
}

bool SafetensorsReader::IsKnownGood(const SafetensorsEntry& entry) const {
  return !checksums_.has_value() || verified_[&entry - entries().data()];
}

absl::Status SafetensorsReader::Compare(const SafetensorsEntry& entry,
                                        uint32_t found) {
  const size_t i = &entry - entries().data();
  const uint32_t written = (*checksums_)[i];
  verified_[i] = found == written;
  if (verified_[i]) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      file_.path(), " is damaged: the values of ", entry.name, " (bytes ",
      data_begin_ + entry.begin, " to ", data_begin_ + entry.end,
      " of the file) have the checksum ", absl::Hex(found, absl::kZeroPad8),
      ", written was ", absl::Hex(written, absl::kZeroPad8), kAdvice));
}

absl::Status SafetensorsReader::CheckDtype(
    const SafetensorsEntry& entry) const {
  if (entry.unread_dtype.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file_.path(), ": tensor ", entry.name, " is of dtype ",
      entry.unread_dtype, ", which is not read: convert it to one of ",
      KnownDtypeNames()));
}

absl::Status SafetensorsReader::Verify(const SafetensorsEntry& entry) {
  TANDEM_RETURN_IF_ERROR(CheckDtype(entry));
  if (IsKnownGood(entry)) return absl::OkStatus();
  std::string piece(std::min(kCrc32PieceBytes, entry.bytes()), '\0');
  uint32_t crc = 0;
  for (uint64_t at = entry.begin; at < entry.end;) {
    const uint64_t size = std::min(kCrc32PieceBytes, entry.end - at);
    TANDEM_RETURN_IF_ERROR(file_.ReadAt(data_begin_ + at, piece.data(), size));
    crc = Crc32(crc, piece.data(), size);
    at += size;
  }
  return Compare(entry, crc);
}

absl::Status SafetensorsReader::ReadInto(const SafetensorsEntry& entry,
                                         void* values) {
  TANDEM_RETURN_IF_ERROR(
      file_.ReadAt(data_begin_ + entry.begin, values, entry.bytes()));
  if (damage_ != Damage::kTold && !IsKnownGood(entry)) {
    TANDEM_RETURN_IF_ERROR(Compare(entry, Crc32(0, values, entry.bytes())));
  }
  if (entry.dtype == at::kBool) MakeBools(values, entry.bytes());
  return absl::OkStatus();
}

absl::Status SafetensorsReader::ReadBytes(const SafetensorsEntry& entry,
                                          uint64_t begin, uint64_t size,
                                          void* bytes) const {
  TANDEM_RETURN_IF_ERROR(
      file_.ReadAt(data_begin_ + entry.begin + begin, bytes, size));
  if (entry.dtype == at::kBool) MakeBools(bytes, size);
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> SafetensorsReader::Read(
    const SafetensorsEntry& entry) {
  TANDEM_RETURN_IF_ERROR(CheckDtype(entry));
  TANDEM_ASSIGN_OR_RETURN(
      at::Tensor tensor,
      CatchTorchOr([&] { return at::empty(entry.shape, entry.dtype); },
                   absl::StrCat(file_.path(), ": tensor ", entry.name)));
  TANDEM_RETURN_IF_ERROR(ReadInto(entry, tensor.mutable_data_ptr()));
  return tensor;
}

absl::StatusOr<NamedTensors> SafetensorsReader::ReadAll() {
  NamedTensors tensors;
  for (const SafetensorsEntry& entry : entries()) {
    TANDEM_ASSIGN_OR_RETURN(at::Tensor tensor, Read(entry));
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace tandem
