#include "core/safetensors.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/atomic_file.h"
#include "core/dtype_names.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "values are written as they lie in memory");

constexpr uint64_t kLengthBytes = sizeof(uint64_t);

absl::Status CheckWritable(const NamedTensors& tensors) {
  std::set<std::string> names = {"__metadata__"};
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors, or one with a reserved name: ", name));
    }
    if (!tensor.defined() || tensor.layout() != at::kStrided ||
        DtypeName(tensor.scalar_type()).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", name, " cannot be stored: it must be defined, dense and ",
          "one of ", KnownDtypeNames()));
    }
  }
  return absl::OkStatus();
}

NamedTensors InFileOrder(NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::forward_as_tuple(b.second.element_size(), a.first) <
           std::forward_as_tuple(a.second.element_size(), b.first);
  });
  return tensors;
}

SafetensorsHeader HeaderOf(const NamedTensors& tensors,
                           const SafetensorsMetadata& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t end = at + tensor.numel() * tensor.element_size();
    header.entries.push_back(
        {name, tensor.scalar_type(), tensor.sizes().vec(), at, end});
    at = end;
  }
  return header;
}

absl::Status AppendTensor(AtomicFile& file, const at::Tensor& tensor) {
  // No copy when it is already so.
  const at::Tensor values = tensor.detach().cpu().contiguous();
  return file.Append(values.const_data_ptr(),
                     values.numel() * values.element_size());
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path,
                              const NamedTensors& tensors,
                              const SafetensorsMetadata& metadata) {
  TANDEM_RETURN_IF_ERROR(CheckWritable(tensors));
  const NamedTensors ordered = InFileOrder(tensors);
  const std::string header =
      FormatSafetensorsHeader(HeaderOf(ordered, metadata));
  if (header.size() > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot write ", path, ": a header of ", header.size(),
        " bytes is more than the format allows: ", kMaxSafetensorsHeaderBytes));
  }
  TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
  const uint64_t length = header.size();
  TANDEM_RETURN_IF_ERROR(file->Append(&length, kLengthBytes));
  TANDEM_RETURN_IF_ERROR(file->Append(header));
  for (const auto& each : ordered) {
    TANDEM_RETURN_IF_ERROR(AppendTensor(*file, each.second));
  }
  return file->Commit();
}

SafetensorsReader::SafetensorsReader(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

SafetensorsReader::~SafetensorsReader() { close(descriptor_); }

absl::Status SafetensorsReader::Bad(const std::string& why) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, " is not a usable safetensors file: ", why));
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  // Opening a pipe would wait for somebody to write.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  auto reader = std::unique_ptr<SafetensorsReader>(
      new SafetensorsReader(path, descriptor));
  TANDEM_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

absl::Status SafetensorsReader::ReadHeader() {
  struct stat status;
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    return Bad("not a regular file");
  }
  const uint64_t file_bytes = status.st_size;
  uint64_t length;
  if (file_bytes < kLengthBytes) {
    return Bad(absl::StrCat("only ", file_bytes, " bytes long"));
  }
  TANDEM_RETURN_IF_ERROR(ReadAt(0, &length, kLengthBytes));
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
  TANDEM_RETURN_IF_ERROR(ReadAt(kLengthBytes, json.data(), length));
  data_begin_ = kLengthBytes + length;
  auto header = ParseSafetensorsHeader(json, file_bytes - data_begin_);
  if (!header.ok()) return Bad(std::string(header.status().message()));
  header_ = *std::move(header);
  return absl::OkStatus();
}

absl::Status SafetensorsReader::ReadAt(uint64_t offset, void* to,
                                       uint64_t size) const {
  char* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = pread(descriptor_, bytes, size, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    }
    if (got == 0) return Bad("it became shorter while it was read");
    bytes += got, offset += got, size -= got;
  }
  return absl::OkStatus();
}

const SafetensorsEntry* SafetensorsReader::Find(const std::string& name) const {
  for (const SafetensorsEntry& entry : entries()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

absl::StatusOr<at::Tensor> SafetensorsReader::Read(
    const SafetensorsEntry& entry) const {
  TANDEM_ASSIGN_OR_RETURN(
      at::Tensor tensor,
      CatchTorchOr([&] { return at::empty(entry.shape, entry.dtype); },
                   absl::StrCat(path_, ": tensor ", entry.name)));
  TANDEM_RETURN_IF_ERROR(ReadAt(data_begin_ + entry.begin,
                                tensor.mutable_data_ptr(), entry.bytes()));
  return tensor;
}

absl::StatusOr<NamedTensors> SafetensorsReader::ReadAll() const {
  NamedTensors tensors;
  for (const SafetensorsEntry& entry : entries()) {
    TANDEM_ASSIGN_OR_RETURN(at::Tensor tensor, Read(entry));
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace tandem
