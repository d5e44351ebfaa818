#include "parallel/pipeline/stage/stage.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

StageMessage LeavesOf(const StageMessage& message) {
  StageMessage leaves;
  for (const at::Tensor& each : message) leaves.push_back(LeafOf(each));
  return leaves;
}

// A layer that writes to its input computes something else the second time.
class InputWatch {
 public:
  explicit InputWatch(const StageMessage& inputs) : inputs_(inputs) {
    for (const at::Tensor& each : inputs) before_.push_back(each._version());
  }

  absl::Status Check() const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i]._version() == before_[i]) continue;
      return absl::InvalidArgumentError(
          "a layer changes the stage's input in place, which activation "
          "checkpointing needs a second time: use the layer that does not");
    }
    return absl::OkStatus();
  }

 private:
  const StageMessage& inputs_;
  std::vector<uint32_t> before_;
};

// One that is cut off from the outputs would train nothing, in silence.
absl::Status CheckDependsOn(const StageMessage& outputs,
                            const at::Tensor& loss) {
  const bool takes = absl::c_any_of(
      outputs, [](const at::Tensor& each) { return each.requires_grad(); });
  if (!takes || loss.requires_grad()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the loss requires no gradient, though the outputs that it is to be made "
      "of do: is it detached, or made of an argmax?");
}

}  // namespace

PipelineStage::PipelineStage(LayerList layers, StageOptions options)
    : layers_(std::move(layers)),
      options_(std::move(options)),
      last_pops_(LastPops(LinksOf(layers_), options_.outgoing)),
      running_(std::make_unique<std::atomic<const Layer*>>(nullptr)) {
  CHECK_GE(options_.weight_gradient_batch, 1);
  if (options_.records_statistics) {
    records_ = std::make_unique<StatisticsRecords>(layers_);
  }
}

bool PipelineStage::PassesBy(const std::string& skip) const {
  return !has_loss() && absl::c_linear_search(options_.incoming, skip) &&
         absl::c_linear_search(options_.outgoing, skip) &&
         absl::c_none_of(layers_, [&](const Layer& each) {
           return absl::c_linear_search(each.links.pop, skip) ||
                  absl::c_linear_search(each.links.stash, skip);
         });
}

absl::StatusOr<LossResult> PipelineStage::Loss(const StageMessage& outputs,
                                               const Kept& kept) const {
  CHECK(has_loss()) << name() << " is not the last";
  const c10::OptionalDeviceGuard guard(device());
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  TensorsByName further;
  for (size_t i = 0; i < options_.outgoing.size(); ++i) {
    further[options_.outgoing[i]] = outputs[i + 1];
  }
  return CatchTorchOr(
      [&] {
        LossResult result =
            options_.loss(ArgumentsOf(outputs[0], further, kept.targets));
        result.loss = WeighLoss(result.loss, kept.weight, outputs[0], further);
        return result;
      },
      "loss");
}

absl::StatusOr<StageMessage> PipelineStage::RunWithGraph(Kept* kept,
                                                         DeferredScore* score) {
  StageMessage leaves = LeavesOf(kept->inputs);
  const bool defers =
      options_.splits_backward || options_.weight_gradient_batch > 1;
  kept->sink = defers ? std::make_shared<WeightGradientSink>() : nullptr;
  const WeightGradientSink::Scope scope(kept->sink);
  LossTerms terms;
  const LossTerms::Scope collecting(&terms);
  TANDEM_ASSIGN_OR_RETURN(StageMessage outputs, Run(kept->pass, leaves));
  if (has_loss()) {
    TANDEM_ASSIGN_OR_RETURN(const LossResult result, Loss(outputs, *kept));
    const bool adds_losses = absl::c_any_of(
        terms.terms(), [](const auto& each) { return !each.is_sum; });
    if (!adds_losses) {
      TANDEM_RETURN_IF_ERROR(CheckDependsOn(outputs, result.loss));
    }
    *score = {result.score, result.sums};
    outputs = {result.loss};
  }
  kept->inputs = std::move(leaves);
  TANDEM_ASSIGN_OR_RETURN(kept->roots,
                          CatchTorchOr([&] { return RootsOf(outputs); }));
  TANDEM_RETURN_IF_ERROR(Keep(terms, kept));
  return outputs;
}

absl::StatusOr<StageMessage> PipelineStage::RunWithoutGraph(
    Kept* kept, DeferredScore* score) {
  const at::NoGradGuard no_grad;
  const KeptStatistics::Recording statistics(&kept->statistics);
  const InputWatch watch(kept->inputs);
  TANDEM_ASSIGN_OR_RETURN(StageMessage outputs, Run(kept->pass, kept->inputs));
  TANDEM_RETURN_IF_ERROR(watch.Check());
  if (has_loss()) {
    TANDEM_ASSIGN_OR_RETURN(const LossResult result, Loss(outputs, *kept));
    *score = {result.score, result.sums};
  }
  return outputs;
}

// Losses that were added: what backward begins from, too.
absl::Status PipelineStage::Keep(const LossTerms& terms, Kept* kept) {
  const double weight = kept->pass.weight;
  return CatchTorch([&] {
    for (const LossTerms::Term& each : terms.terms()) {
      auxiliary_losses_.push_back({each.name, kept->pass.microbatch.index,
                                   weight, each.loss.detach(), each.is_sum});
      if (!each.loss.requires_grad()) continue;
      kept->roots->push_back(RootOfLoss(each.loss.mul(weight)));
    }
    ScaleLosses(*kept->roots, kept->pass.loss_scale);
  });
}

// Of a forward alone.
void PipelineStage::KeepSums(const LossTerms& terms) {
  for (const LossTerms::Term& each : terms.terms()) {
    if (!each.is_sum) continue;
    auxiliary_losses_.push_back(
        {each.name, /*microbatch=*/0, /*weight=*/1, each.loss, each.is_sum});
  }
}

std::vector<AuxiliaryLoss> PipelineStage::TakeAuxiliaryLosses() {
  return std::exchange(auxiliary_losses_, {});
}

absl::StatusOr<StageMessage> PipelineStage::Begin(Kept kept,
                                                  DeferredScore* score) {
  const int index = kept.pass.microbatch.index;
  CHECK_EQ(kept_.count(index), 0u)
      << name() << " has microbatch " << index << " already";
  kept.inputs = LeavesOf(kept.inputs);
  TANDEM_ASSIGN_OR_RETURN(StageMessage outputs,
                          kept.pass.keeps_activations
                              ? RunWithGraph(&kept, score)
                              : RunWithoutGraph(&kept, score));
  outputs = HandedOver(outputs, kept);
  kept_[index] = std::move(kept);
  return outputs;
}

absl::StatusOr<StageMessage> PipelineStage::Forward(
    const StagePass& pass, const StageMessage& inputs) {
  Kept kept;
  kept.pass = pass;
  kept.inputs = inputs;
  DeferredScore none;
  return Begin(std::move(kept), &none);
}

absl::StatusOr<DeferredScore> PipelineStage::ForwardLoss(
    const StagePass& pass, const StageMessage& inputs,
    const LossTargets& targets, double weight) {
  Kept kept;
  kept.pass = pass;
  kept.inputs = inputs;
  kept.targets = targets;
  kept.weight = weight;
  DeferredScore score;
  TANDEM_RETURN_IF_ERROR(Begin(std::move(kept), &score).status());
  return score;
}

absl::StatusOr<StageMessage> PipelineStage::Infer(const StagePass& pass,
                                                  const StageMessage& inputs) {
  const at::NoGradGuard no_grad;
  LossTerms terms;
  const LossTerms::Scope collecting(&terms);
  TANDEM_ASSIGN_OR_RETURN(StageMessage outputs, Run(pass, inputs));
  KeepSums(terms);
  return outputs;
}

absl::StatusOr<DeferredScore> PipelineStage::Judge(const StageMessage& outputs,
                                                   const LossTargets& targets) {
  const at::NoGradGuard no_grad;
  LossTerms terms;
  const LossTerms::Scope collecting(&terms);
  Kept kept;
  kept.targets = targets;
  TANDEM_ASSIGN_OR_RETURN(const LossResult result, Loss(outputs, kept));
  KeepSums(terms);
  return DeferredScore{result.score, result.sums};
}

const Layer* PipelineStage::running_layer() const {
  return running_->load(std::memory_order_relaxed);
}

}  // namespace tandem
