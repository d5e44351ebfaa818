// What a stage does after forward: activations again, and backward.

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "core/layer_list.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "parallel/pipeline_stage.h"

namespace tandem {
namespace {

// What a layer that runs again would change a second time.
class BufferKeeper {
 public:
  explicit BufferKeeper(const LayerList& layers)
      : buffers_(NamedBuffers(layers)) {
    for (const auto& each : buffers_) values_.push_back(each.second.clone());
  }
  ~BufferKeeper() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < values_.size(); ++i) {
      // Graphs of other microbatches hold the buffer, and count its changes;
      // this is none, and goes by a tensor that counts for itself.
      buffers_[i].second.variable_data().copy_(values_[i]);
    }
  }
  BufferKeeper(const BufferKeeper&) = delete;
  BufferKeeper& operator=(const BufferKeeper&) = delete;

 private:
  const NamedTensors buffers_;
  std::vector<at::Tensor> values_;
};

}  // namespace

absl::Status PipelineStage::Recompute(int microbatch) {
  const auto found = kept_.find(microbatch);
  CHECK(found != kept_.end()) << name() << " has no microbatch " << microbatch;
  Kept& kept = found->second;
  if (!kept.outputs.empty()) return absl::OkStatus();
  kept.pass.microbatch.is_recomputed = true;
  const BufferKeeper keeper(layers_);
  Score known;
  return Annotate(RunWithGraph(&kept, &known), "computing activations again");
}

absl::StatusOr<StageMessage> PipelineStage::GradientsOfInputs(
    const Kept& kept, const StageMessage& gradients) const {
  const c10::OptionalDeviceGuard guard(device());
  std::vector<at::Tensor> roots, root_gradients;
  for (size_t i = 0; i < kept.outputs.size(); ++i) {
    if (i > 0 && PassesBy(options_.outgoing[i - 1])) continue;
    const at::Tensor gradient = has_loss() ? at::Tensor() : gradients[i];
    const bool is_root =
        kept.outputs[i].requires_grad() && (has_loss() || gradient.defined());
    if (!is_root) continue;
    roots.push_back(kept.outputs[i]);
    root_gradients.push_back(gradient);
  }
  roots.insert(roots.end(), kept.added.begin(), kept.added.end());
  root_gradients.resize(roots.size());
  return CatchTorchOr(
      [&] {
        if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
        StageMessage further;
        for (const at::Tensor& each : kept.inputs) {
          further.push_back(each.grad());
        }
        for (size_t i = 0; i < options_.incoming.size(); ++i) {
          const auto out =
              absl::c_find(options_.outgoing, options_.incoming[i]);
          if (out == options_.outgoing.end()) continue;
          further[i + 1] = gradients[static_cast<size_t>(
              out - options_.outgoing.begin() + 1)];
        }
        return further;
      },
      "backward");
}

absl::StatusOr<StageMessage> PipelineStage::BackwardInput(
    int microbatch, const StageMessage& gradients) {
  TANDEM_RETURN_IF_ERROR(Recompute(microbatch));
  const auto found = kept_.extract(microbatch);
  const Kept& kept = found.mapped();
  CHECK_EQ(gradients.size(), has_loss() ? 0 : kept.outputs.size());
  left_[microbatch] = kept.sink;
  return GradientsOfInputs(kept, gradients);
}

std::vector<at::Tensor> PipelineStage::WeightsLeft(int microbatch) const {
  const auto found = left_.find(microbatch);
  const bool has = found != left_.end() && found->second != nullptr;
  return has ? found->second->weights() : std::vector<at::Tensor>();
}

absl::Status PipelineStage::BackwardWeight(int microbatch) {
  auto found = left_.extract(microbatch);
  CHECK(!found.empty()) << name() << " has done no first part of microbatch "
                        << microbatch;
  if (found.mapped() == nullptr) return absl::OkStatus();
  waiting_.push_back(std::move(found.mapped()));
  const auto enough = static_cast<size_t>(options_.weight_gradient_batch);
  return waiting_.size() < enough ? absl::OkStatus() : FlushWeights();
}

absl::Status PipelineStage::FlushWeights() {
  const c10::OptionalDeviceGuard guard(device());
  std::vector<Sink> sinks;
  sinks.swap(waiting_);
  return Annotate(WeightGradientSink::FlushTogether(sinks),
                  "gradients of weights");
}

absl::StatusOr<StageMessage> PipelineStage::Backward(
    int microbatch, const StageMessage& gradients) {
  absl::StatusOr<StageMessage> further = BackwardInput(microbatch, gradients);
  if (!further.ok()) return further;
  TANDEM_RETURN_IF_ERROR(BackwardWeight(microbatch));
  return further;
}

}  // namespace tandem
