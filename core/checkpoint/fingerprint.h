// Fingerprint of weights: one number that says whether two sets are the same.

#ifndef TANDEM_CORE_CHECKPOINT_FINGERPRINT_H_
#define TANDEM_CORE_CHECKPOINT_FINGERPRINT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/digest/sha256.h"

namespace tandem {

// SHA-256 of `tensors`, as 64 hexadecimal digits: over names, shapes, dtypes
// and the bits of the values, not over memory. The order in which they are
// given, strides and device do not matter. Hashed is
//
//   "tandem weights 1\n", then for each tensor in byte order of the names
//     u64 length of the name, the name,
//     u64 length of the dtype's name, that name ("F32",
//     core/base/dtype_names.h), u64 number of dimensions, u64 each size, the
//     values, row-major;
//
// all numbers and values little-endian. Values are compared as bits: 0 and -0
// differ, so do NaNs with different payloads.
//
// Requires: distinct names; dense tensors of dtypes that have a name.
std::string WeightsSha256(const NamedTensors& tensors);

// The same of a stream: no more than one tensor is held.
class WeightsHasher : public TensorSink {
 public:
  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override {
    return a.name < b.name;
  }
  absl::Status Begin(std::vector<TensorInfo> infos) override;
  absl::Status Add(const at::Tensor& values) override;

  // Requires that all have come.
  std::string HexDigest() const;

 private:
  Sha256 hash_;
  std::vector<TensorInfo> forms_;
  size_t next_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FINGERPRINT_H_
