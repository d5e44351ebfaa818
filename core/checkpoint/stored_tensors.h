// Stored tensors: known by name, dtype and shape, read when their values are
// needed.

#ifndef TANDEM_CORE_CHECKPOINT_STORED_TENSORS_H_
#define TANDEM_CORE_CHECKPOINT_STORED_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor_shard.h"
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
  // moved about for it. Null: as if it were always false.
  std::function<absl::StatusOr<bool>(const at::Tensor&)> read_into = nullptr;
  // Puts the values of a shard into a tensor of the host that has its sizes and
  // the stored dtype, and reads no more than it needs for that. Null: all are
  // read.
  std::function<absl::Status(const TensorShard&, const at::Tensor&)>
      read_shard = nullptr;
  // What `verify` would say of the values that it reads. Null: of all.
  std::function<absl::Status(const TensorShard&)> verify_shard = nullptr;
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

  // The tensor of this name, which is not among these, keeps the values that it
  // has where they are loaded.
  void Keep(std::string name) { kept_.insert(std::move(name)); }
  const std::set<std::string>& kept() const { return kept_; }

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
  std::set<std::string> kept_;
};

// Verifies one; the error is that of the store.
absl::Status Verify(const StoredTensor& tensor);

// A shard of a stored tensor as one of its own, under the same name. Requires a
// shard of it (CheckShard).
StoredTensor StoredShard(const StoredTensor& whole, const TensorShard& shard);

// Puts the values into `target`, of the same shape: without a copy in between
// where it is a dense one of the host, of the stored dtype. An error of the
// store's leaves it as it was, unless it comes in the middle of the file.
absl::Status ReadInto(const StoredTensor& tensor, const at::Tensor& target);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_STORED_TENSORS_H_
