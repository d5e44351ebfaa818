// What a stage does after forward: activations again, and backward.

#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/engine.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/device_trace.h"
#include "core/model/layer_flow.h"
#include "core/model/layer_list.h"
#include "parallel/activation_checkpointing/recompute_context.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/split_backward/graph_split.h"

namespace tandem {
namespace {

// Real and complex numbers can.
bool CanTakeGradient(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) ||
         at::isComplexType(tensor.scalar_type());
}

// Could an output of the layers?
bool MayTakeGradients(const LayerList& layers, const StageMessage& inputs) {
  const auto takes = [](const at::Tensor& each) {
    return each.requires_grad();
  };
  return absl::c_any_of(inputs, takes) ||
         absl::c_any_of(NamedParameters(layers),
                        [&](const auto& each) { return takes(each.second); });
}

std::vector<at::Tensor> LayerBuffers(const LayerList& layers) {
  std::vector<at::Tensor> buffers;
  for (const auto& each : NamedBuffers(layers)) buffers.push_back(each.second);
  return buffers;
}

}  // namespace

// Backward begins from the outputs, or from the loss in their place, and from
// losses that were added.
absl::Status PipelineStage::KeepRoots(const StageMessage& outputs,
                                      const LossTerms& terms, Kept& kept) {
  const c10::OptionalDeviceGuard guard(device());
  return CatchTorch([&] {
    std::vector<BackwardRoot> roots;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (passing_.count(i) > 0 || !outputs[i].requires_grad()) continue;
      roots.push_back(kept.targets.has_value() ? RootOfLoss(outputs[i])
                                               : RootOfOutput(outputs[i], i));
    }
    for (const LossTerm& each : terms.terms()) {
      if (!each.loss.requires_grad()) continue;
      roots.push_back(RootOfLoss(each.loss.mul(kept.pass.weight)));
    }
    ScaleLosses(roots, kept.pass.loss_scale);
    kept.roots = std::move(roots);
  });
}

StageMessage PipelineStage::OutputLeaves(const StageMessage& outputs,
                                         const Kept& kept) const {
  StageMessage leaves;
  if (kept.targets.has_value()) return leaves;
  for (const at::Tensor& each : outputs) leaves.push_back(DetachedLeaf(each));
  if (kept.pass.all_keep_activations) return leaves;
  const bool may = MayTakeGradients(layers_, kept.inputs);
  for (size_t i = 0; i < leaves.size(); ++i) {
    // What passes by has come as a leaf.
    if (passing_.count(i) > 0) continue;
    leaves[i].requires_grad_(may && CanTakeGradient(leaves[i]));
  }
  return leaves;
}

absl::Status PipelineStage::Recompute(int microbatch) {
  const auto found = kept_.find(microbatch);
  CHECK(found != kept_.end()) << name() << " has no microbatch " << microbatch;
  Kept& kept = found->second;
  if (kept.roots.has_value()) return absl::OkStatus();
  kept.pass.microbatch.is_recomputed = true;
  const DeviceTraceScope slice(options_.track, "activations again", device());
  const KeptBuffers kept_buffers(LayerBuffers(layers_));
  const KeptStatistics::Replay statistics(&kept.statistics);
  return Annotate(Compute(kept, StageKeeps::kActivations).status(),
                  "computing activations again");
}

absl::StatusOr<StageMessage> PipelineStage::BackwardInput(
    int microbatch, const StageMessage& gradients) {
  TANDEM_RETURN_IF_ERROR(Recompute(microbatch));
  const auto found = kept_.extract(microbatch);
  const Kept& kept = found.mapped();
  CHECK_EQ(gradients.size(),
           kept.targets.has_value() ? 0 : 1 + options_.outgoing.size());
  PendingWeightGradients& deferred = deferred_[microbatch];
  deferred.sink = kept.sink;
  const c10::OptionalDeviceGuard guard(device());
  torch::autograd::edge_list roots;
  torch::autograd::variable_list root_gradients;
  for (const BackwardRoot& each : *kept.roots) {
    const at::Tensor& gradient =
        each.output.has_value() ? gradients[*each.output] : each.one;
    if (!gradient.defined()) continue;
    roots.push_back(each.edge);
    root_gradients.push_back(gradient);
  }
  return CatchTorchOr(
      [&] {
        if (options_.splits_backward && options_.checkpointed.empty()) {
          deferred.rest =
              GraphSplit::BackwardInputs(roots, root_gradients, kept.inputs);
        } else if (!roots.empty()) {
          torch::autograd::Engine::get_default_engine().execute(
              roots, root_gradients, /*keep_graph=*/false,
              /*create_graph=*/false, /*accumulate_grad=*/true);
        }
        if (kept.slices != nullptr) kept.slices->End();
        StageMessage further;
        for (const at::Tensor& each : kept.inputs) {
          further.push_back(each.grad());
        }
        for (const auto& [out, in] : passing_) further[in] = gradients[out];
        return further;
      },
      "backward");
}

std::vector<at::Tensor> PipelineStage::WeightsLeft(int microbatch) const {
  const auto found = deferred_.find(microbatch);
  if (found == deferred_.end()) return {};
  const PendingWeightGradients& deferred = found->second;
  std::vector<at::Tensor> weights = deferred.rest.weights();
  if (deferred.sink == nullptr) return weights;
  const std::vector<at::Tensor> others = deferred.sink->weights();
  weights.insert(weights.end(), others.begin(), others.end());
  return weights;
}

absl::Status PipelineStage::BackwardWeight(int microbatch) {
  auto found = deferred_.extract(microbatch);
  CHECK(!found.empty()) << name() << " has done no first part of microbatch "
                        << microbatch;
  PendingWeightGradients& deferred = found.mapped();
  const c10::OptionalDeviceGuard guard(device());
  // Each microbatch's for itself: nothing is won by computing several at once.
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { deferred.rest.BackwardWeights(); },
                                    "gradients of weights"));
  if (deferred.sink == nullptr) return absl::OkStatus();
  waiting_.push_back(std::move(deferred.sink));
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

void PipelineStage::Clear() {
  kept_.clear();
  deferred_.clear();
  waiting_.clear();
  terms_.clear();
}

}  // namespace tandem
