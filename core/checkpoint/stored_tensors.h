// Stored tensors: known by name, dtype and shape, read when their values are
// needed.

#ifndef TANDEM_CORE_CHECKPOINT_STORED_TENSORS_H_
#define TANDEM_CORE_CHECKPOINT_STORED_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

struct StoredTensor {
  TensorInfo info;
  // The values, as they were stored. May be called any number of times.
  std::function<absl::StatusOr<at::Tensor>()> read;
  // What `read` would say, without the values. Null: nothing can be wrong.
  std::function<absl::Status()> verify;
  // Puts the values where a tensor of the host has its own; false, and nothing
  // is done, where that is of another shape or dtype, or they would have to be
  // moved about for it. Null: as if it were always false; so it must be of what
  // is a part of another stored tensor.
  std::function<absl::StatusOr<bool>(const at::Tensor&)> read_into = nullptr;
};

// What a checkpoint's tensors are to those who load it: each takes what it
// owns, one tensor at a time, and leaves the rest unread. Made of tensors in
// memory by itself where a function takes one.
class StoredTensors {
 public:
  StoredTensors() = default;
  StoredTensors(const NamedTensors& tensors);  // NOLINT: implicit
  StoredTensors(std::initializer_list<NamedTensors::value_type> tensors)
      : StoredTensors(NamedTensors(tensors)) {}

  void Add(StoredTensor tensor) { tensors_.push_back(std::move(tensor)); }

  std::vector<StoredTensor>::const_iterator begin() const {
    return tensors_.begin();
  }
  std::vector<StoredTensor>::const_iterator end() const {
    return tensors_.end();
  }
  size_t size() const { return tensors_.size(); }
  bool empty() const { return tensors_.empty(); }

 private:
  std::vector<StoredTensor> tensors_;
};

// Verifies one; the error is that of the store.
absl::Status Verify(const StoredTensor& tensor);

// Puts the values into `target`, of the same shape: without a copy in between
// where it is a dense one of the host, of the stored dtype. An error of the
// store's leaves it as it was, unless it comes in the middle of the file.
absl::Status ReadInto(const StoredTensor& tensor, const at::Tensor& target);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_STORED_TENSORS_H_
