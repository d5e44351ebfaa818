// Tensor streams: what tensors there are, then their values one by one.
//
// For models that are too large to be held twice: a writer or a hash takes one
// tensor at a time, and drops it before the next one comes.

#ifndef TANDEM_CORE_CHECKPOINT_TENSOR_STREAM_H_
#define TANDEM_CORE_CHECKPOINT_TENSOR_STREAM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensors.h"

namespace tandem {

// What a tensor is, but for its values.
struct TensorInfo {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
};

// Undefined as dtype for a tensor that is undefined or not dense.
TensorInfo MakeTensorInfo(const std::string& name, const at::Tensor& tensor);

// "Float [64, 3, 7, 7]", as DescribeTensor says it.
std::string Describe(const TensorInfo& info);

// What takes a stream. Not thread-safe.
class TensorSink {
 public:
  virtual ~TensorSink() = default;

  // The order in which it wants tensors: a strict order of distinct names. A
  // function of these alone, so that several ranks can follow it.
  virtual bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const = 0;

  // Once, first: all that will come, in that order.
  virtual absl::Status Begin(std::vector<TensorInfo> infos) = 0;
  // Once for each of them, in that order: of any strides, on any device.
  virtual absl::Status Add(const at::Tensor& values) = 0;
};

// The whole stream of `tensors`, given in any order. Copies nothing.
absl::Status StreamTensors(const NamedTensors& tensors, TensorSink& sink);

// Collected tensors: a stream of tensors kept whole, for small models.

// Keeps what comes, ordered by name. Copies nothing: what is the sender's own
// stays an alias of it. Not thread-safe.
class CollectedTensors : public TensorSink {
 public:
  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override {
    return a.name < b.name;
  }
  absl::Status Begin(std::vector<TensorInfo> infos) override {
    infos_ = std::move(infos);
    return absl::OkStatus();
  }
  absl::Status Add(const at::Tensor& values) override {
    tensors.emplace_back(infos_[tensors.size()].name, values);
    return absl::OkStatus();
  }

  NamedTensors tensors;

 private:
  std::vector<TensorInfo> infos_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_TENSOR_STREAM_H_
