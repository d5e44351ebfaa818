#include "tests/parallel/strategy/gather_on_rank0.h"

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/checkpoint/tensor_stream.h"
#include "parallel/strategy/gathered_tensors.h"

namespace tandem {
namespace {

class Collector : public TensorSink {
 public:
  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override {
    return a.name < b.name;
  }
  absl::Status Begin(std::vector<TensorInfo> infos) override {
    infos_ = std::move(infos);
    return absl::OkStatus();
  }
  absl::Status Add(const at::Tensor& values) override {
    tensors.emplace_back(infos_[tensors.size()].name, values.clone());
    return absl::OkStatus();
  }

  NamedTensors tensors;

 private:
  std::vector<TensorInfo> infos_;
};

}  // namespace

absl::StatusOr<NamedTensors> GatherOnRank0(const NamedTensors& mine,
                                           Communicator& group) {
  Collector all;
  TANDEM_RETURN_IF_ERROR(StreamToRank0(mine, group, all));
  return std::move(all.tensors);
}

}  // namespace tandem
