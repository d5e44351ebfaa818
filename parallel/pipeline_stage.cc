#include "parallel/pipeline_stage.h"

#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/memory_category.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

// A leaf of this stage's own graph.
at::Tensor LeafOf(const at::Tensor& input) {
  at::Tensor leaf = input.detach();
  const bool takes_gradient = at::isFloatingType(leaf.scalar_type()) ||
                              at::isComplexType(leaf.scalar_type());
  return takes_gradient ? leaf.requires_grad_() : leaf;
}

}  // namespace

PipelineStage::PipelineStage(std::string name, LayerList layers,
                             c10::Device device, bool splits_backward)
    : name_(std::move(name)),
      layers_(std::move(layers)),
      device_(device),
      splits_backward_(splits_backward) {}

absl::StatusOr<at::Tensor> PipelineStage::Run(const at::Tensor& input) const {
  const c10::OptionalDeviceGuard guard(device_);
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  at::Tensor values = input;
  for (const Layer& layer : layers_) {
    TANDEM_ASSIGN_OR_RETURN(values,
                            CatchTorchOr([&] { return layer.forward(values); },
                                         absl::StrCat("layer ", layer.name)));
  }
  return values;
}

absl::StatusOr<at::Tensor> PipelineStage::Begin(int microbatch,
                                                const at::Tensor& input) {
  CHECK_EQ(kept_.count(microbatch), 0u)
      << name_ << " has microbatch " << microbatch << " already";
  const at::Tensor leaf = LeafOf(input);
  const Sink sink =
      splits_backward_ ? std::make_shared<WeightGradientSink>() : nullptr;
  const WeightGradientSink::Scope scope(sink);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, Run(leaf));
  kept_[microbatch] = {leaf, output, sink};
  return output;
}

absl::StatusOr<at::Tensor> PipelineStage::Forward(int microbatch,
                                                  const at::Tensor& input) {
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, Begin(microbatch, input));
  return output.detach();
}

absl::StatusOr<Score> PipelineStage::ForwardLoss(int microbatch,
                                                 const at::Tensor& input,
                                                 const at::Tensor& targets,
                                                 double weight,
                                                 const LossFunction& loss) {
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor output, Begin(microbatch, input));
  const c10::OptionalDeviceGuard guard(device_);
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  return CatchTorchOr(
      [&] {
        const LossResult result = loss(output, targets.to(output.device()));
        kept_[microbatch].output =
            weight == 1 ? result.loss : result.loss.mul(weight);
        return result.score;
      },
      "loss");
}

absl::StatusOr<at::Tensor> PipelineStage::BackwardInput(
    int microbatch, const at::Tensor& gradient) {
  auto found = kept_.extract(microbatch);
  CHECK(!found.empty()) << name_ << " has no microbatch " << microbatch;
  const Kept& kept = found.mapped();
  left_[microbatch] = kept.sink;
  const c10::OptionalDeviceGuard guard(device_);
  return CatchTorchOr(
      [&] {
        if (kept.output.requires_grad()) {
          torch::autograd::backward({kept.output}, {gradient});
        }
        return kept.input.grad();
      },
      "backward");
}

absl::Status PipelineStage::BackwardWeight(int microbatch) {
  auto found = left_.extract(microbatch);
  CHECK(!found.empty()) << name_ << " has done no first part of microbatch "
                        << microbatch;
  if (found.mapped() == nullptr) return absl::OkStatus();
  const c10::OptionalDeviceGuard guard(device_);
  return Annotate(found.mapped()->Flush(), "gradients of weights");
}

absl::StatusOr<at::Tensor> PipelineStage::Backward(int microbatch,
                                                   const at::Tensor& gradient) {
  absl::StatusOr<at::Tensor> further = BackwardInput(microbatch, gradient);
  if (!further.ok()) return further;
  TANDEM_RETURN_IF_ERROR(BackwardWeight(microbatch));
  return further;
}

void PipelineStage::Clear() {
  kept_.clear();
  left_.clear();
}

}  // namespace tandem
