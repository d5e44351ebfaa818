// Tensors in a file, in the safetensors format, which other tools read too.
// The format: core/safetensors_header.h.

#ifndef TANDEM_CORE_SAFETENSORS_H_
#define TANDEM_CORE_SAFETENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/named_tensors.h"
#include "core/safetensors_header.h"

namespace tandem {

// Writes `tensors` to a new file that replaces `path` when it is complete (see
// core/atomic_file.h for what can go wrong on the way). Tensors may have any
// strides and lie on any device; at most one at a time is copied. Wider dtypes
// come first, then names in byte order, so that the same tensors give the same
// file and every value is aligned.
//
// InvalidArgument: a name that comes twice or is "__metadata__", a tensor that
// is undefined, sparse or of a dtype without a name (core/dtype_names.h).
absl::Status WriteSafetensors(const std::string& path,
                              const NamedTensors& tensors,
                              const SafetensorsMetadata& metadata = {});

// An open file: what is in it, and single tensors from it. Trusts nothing that
// the file says. Every error names the path. Thread-compatible.
class SafetensorsReader {
 public:
  // Reads the header. NotFound, PermissionDenied: the file cannot be opened;
  // InvalidArgument: it is no safetensors file, or a damaged one.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(
      const std::string& path);

  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  // In the order of the file.
  const std::vector<SafetensorsEntry>& entries() const {
    return header_.entries;
  }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }

  // The entry of that name, or null.
  const SafetensorsEntry* Find(const std::string& name) const;

  // A copy of the tensor, contiguous, on the CPU. `entry` is of entries().
  absl::StatusOr<at::Tensor> Read(const SafetensorsEntry& entry) const;

  // All of them, in the order of the file.
  absl::StatusOr<NamedTensors> ReadAll() const;

 private:
  SafetensorsReader(std::string path, int descriptor);
  absl::Status ReadHeader();
  absl::Status ReadAt(uint64_t offset, void* to, uint64_t size) const;
  absl::Status Bad(const std::string& why) const;

  std::string path_;
  int descriptor_;
  uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SAFETENSORS_H_
