// Collected tensors: a stream of tensors kept whole, for small models.

#ifndef TANDEM_CORE_CHECKPOINT_COLLECTED_TENSORS_H_
#define TANDEM_CORE_CHECKPOINT_COLLECTED_TENSORS_H_

#include <utility>
#include <vector>

#include "core/base/named_tensors.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

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

#endif  // TANDEM_CORE_CHECKPOINT_COLLECTED_TENSORS_H_
