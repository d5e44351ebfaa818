// Tensors in a file, in the safetensors format, which other tools read too.
// The format: core/checkpoint/safetensors_header.h; how damage is noticed:
// core/checkpoint/safetensors_header.h.

#ifndef TANDEM_CORE_CHECKPOINT_SAFETENSORS_H_
#define TANDEM_CORE_CHECKPOINT_SAFETENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/safetensors_header.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/files/atomic_file.h"
#include "core/files/regular_file.h"

namespace tandem {

// Writes a stream of tensors to a new file that replaces `path` on Commit (see
// core/files/atomic_file.h for what can go wrong on the way). At most one
// tensor at a time is copied. Wider dtypes come first, then names in byte
// order, so that the same tensors give the same file and every value is
// aligned. The file has checksums.
//
// InvalidArgument: a name that comes twice, is "__metadata__" or no UTF-8, a
// tensor that is undefined, sparse or of a dtype without a name
// (core/base/dtype_names.h).
//
// Fault points: "write_tensor:I" before tensor I of the file, from 0;
// "before_commit" before it is synced.
class SafetensorsWriter : public TensorSink {
 public:
  SafetensorsWriter(std::string path, SafetensorsMetadata metadata);

  // Add is OutOfRange, naming the tensor and its first such value, for an
  // infinite or NaN one in a tensor whose name `is_finite` takes. Costs next to
  // nothing: values are in the cache for their checksum.
  void Require(std::function<bool(const std::string& name)> is_finite) {
    is_finite_ = std::move(is_finite);
  }

  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override;
  absl::Status Begin(std::vector<TensorInfo> infos) override;
  absl::Status Add(const at::Tensor& values) override;

  // To be called once, after the last tensor.
  absl::Status Commit();

 private:
  std::string path_;
  SafetensorsHeader header_;
  std::function<bool(const std::string& name)> is_finite_;
  std::unique_ptr<AtomicFile> file_;
  std::vector<uint32_t> checksums_;  // of the tensors that came
};

// All of `tensors` as a file.
absl::Status WriteSafetensors(const std::string& path,
                              const NamedTensors& tensors,
                              const SafetensorsMetadata& metadata = {});

// An open file: what is in it, and single tensors from it. Trusts nothing that
// the file says. Every error names the path. Not thread-safe.
class SafetensorsReader {
 public:
  // What is not as its checksum says, where the file has checksums: refused, or
  // only told (VerifyHeader, Verify).
  enum class Damage { kRefused, kTold };

  // Reads the header. NotFound, PermissionDenied: the file cannot be opened;
  // InvalidArgument: it is no safetensors file, or a damaged one; DataLoss: its
  // checksum says that the header was changed.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(
      const std::string& path, Damage damage = Damage::kRefused);

  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  // In the order of the file.
  const std::vector<SafetensorsEntry>& entries() const {
    return header_.entries;
  }
  // Without the checksums.
  const SafetensorsMetadata& metadata() const { return header_.metadata; }

  // Whether the file has checksums (those of other tools have none).
  bool has_checksums() const {
    return checksums_.has_value() || !header_damage_.ok();
  }
  // DataLoss where the header, or the tensor, is not what was written. A tensor
  // is read for it, once, in pieces.
  absl::Status VerifyHeader() const { return header_damage_; }
  absl::Status Verify(const SafetensorsEntry& entry);

  // The CRC-32 that the values, or all bytes of the file, have if each tensor
  // is what was written: by the header alone, nothing is read for it. None
  // where there are no checksums.
  std::optional<uint32_t> StatedChecksum(const SafetensorsEntry& entry) const;
  std::optional<uint32_t> StatedChecksum() const;
  uint64_t file_bytes() const { return file_.size(); }

  // The entry of that name, or null.
  const SafetensorsEntry* Find(const std::string& name) const;

  // A copy of the tensor, contiguous, on the CPU. `entry` is of entries().
  // InvalidArgument, of this and of Verify, for one of a dtype that is not
  // read.
  absl::StatusOr<at::Tensor> Read(const SafetensorsEntry& entry);
  // The same to memory for entry.bytes(), which DataLoss leaves as it was read:
  // Verify before where it is in use.
  absl::Status ReadInto(const SafetensorsEntry& entry, void* values);
  // Bytes [begin, begin + size) of its values, which it must have. They are not
  // compared with the checksum, which is of all of them: Verify before.
  absl::Status ReadBytes(const SafetensorsEntry& entry, uint64_t begin,
                         uint64_t size, void* bytes) const;

  // All of them, in the order of the file.
  absl::StatusOr<NamedTensors> ReadAll();

 private:
  SafetensorsReader(RegularFile file, Damage damage);
  absl::Status ReadHeader();
  absl::Status CheckDtype(const SafetensorsEntry& entry) const;
  absl::Status Compare(const SafetensorsEntry& entry, uint32_t found);
  bool IsKnownGood(const SafetensorsEntry& entry) const;
  absl::Status Bad(const std::string& why) const;

  const RegularFile file_;
  const Damage damage_;
  uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> entry_of_;  // by name
  absl::Status header_damage_;
  std::optional<std::vector<uint32_t>> checksums_;  // by entry
  uint32_t stated_checksum_ = 0;                    // of the file, by those
  std::vector<bool> verified_;                      // by entry
};

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_SAFETENSORS_H_
