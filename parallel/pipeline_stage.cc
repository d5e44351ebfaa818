#include "parallel/pipeline_stage.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/default_generator.h"
#include "core/layer_list.h"
#include "core/memory_category.h"
#include "core/random.h"
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

// Of what a layer draws from LibTorch's default generator for these samples.
uint64_t SeedOfDraws(const Samples& samples, const std::string& layer) {
  return SipHash(samples.seed, static_cast<uint64_t>(samples.step),
                 absl::StrCat("draws of ", samples.first, " in ", layer));
}

StageMessage Detached(const StageMessage& message) {
  StageMessage detached;
  for (const at::Tensor& each : message) detached.push_back(each.detach());
  return detached;
}

}  // namespace

PipelineStage::PipelineStage(LayerList layers, StageOptions options)
    : layers_(std::move(layers)),
      options_(std::move(options)),
      running_(std::make_unique<std::atomic<const Layer*>>(nullptr)) {
  CHECK_GE(options_.weight_gradient_batch, 1);
  if (options_.records_statistics) {
    records_ = std::make_unique<StatisticsRecords>(layers_);
  }
}

bool PipelineStage::PassesBy(const std::string& skip) const {
  // Names are left once: one that comes in and goes out is not taken here.
  return absl::c_linear_search(options_.incoming, skip) &&
         absl::c_linear_search(options_.outgoing, skip);
}

StageMessage PipelineStage::LeavesOf(const StageMessage& inputs) const {
  StageMessage leaves = {LeafOf(inputs[0])};
  for (size_t i = 1; i < inputs.size(); ++i) {
    const bool is_of_batch = absl::c_linear_search(options_.further_inputs,
                                                   options_.incoming[i - 1]);
    leaves.push_back(is_of_batch ? inputs[i].detach() : LeafOf(inputs[i]));
  }
  return leaves;
}

absl::StatusOr<StageMessage> PipelineStage::Run(const StagePass& pass,
                                                const StageMessage& inputs) {
  CHECK_EQ(inputs.size(), 1 + options_.incoming.size());
  const c10::OptionalDeviceGuard guard(device());
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  Microbatch its = pass.microbatch;
  its.records = records_.get();
  const MicrobatchScope microbatch(its);
  std::optional<SampleScope> samples;
  if (pass.samples.has_value()) samples.emplace(*pass.samples);
  at::Tensor values = inputs[0];
  Skips skips;
  for (size_t i = 0; i < options_.incoming.size(); ++i) {
    skips[options_.incoming[i]] = inputs[i + 1];
  }
  for (const Layer& layer : layers_) {
    std::optional<DefaultGeneratorScope> draws;
    if (pass.samples.has_value()) {
      draws.emplace(SeedOfDraws(*pass.samples, layer.name), device());
    }
    running_->store(&layer, std::memory_order_relaxed);
    auto output = CatchTorchOr([&] { return RunLayer(layer, values, skips); });
    running_->store(nullptr, std::memory_order_relaxed);
    if (!output.ok()) {
      return Annotate(output.status(), absl::StrCat("layer ", layer.name));
    }
    values = *std::move(output);
  }
  StageMessage outputs = {values};
  for (const std::string& name : options_.outgoing) {
    outputs.push_back(skips.at(name));
  }
  return outputs;
}

absl::StatusOr<LossResult> PipelineStage::Loss(const at::Tensor& output,
                                               const Kept& kept) const {
  CHECK(has_loss()) << name() << " is not the last";
  const c10::OptionalDeviceGuard guard(device());
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  return CatchTorchOr(
      [&] {
        LossResult result =
            options_.loss(output, kept.targets.to(output.device()));
        result.loss = WeighLoss(result.loss, kept.weight, output);
        return result;
      },
      "loss");
}

absl::Status PipelineStage::RunWithGraph(Kept* kept, Score* score) {
  StageMessage leaves = LeavesOf(kept->inputs);
  const bool defers =
      options_.splits_backward || options_.weight_gradient_batch > 1;
  kept->sink = defers ? std::make_shared<WeightGradientSink>() : nullptr;
  const WeightGradientSink::Scope scope(kept->sink);
  LossTerms terms;
  const LossTerms::Scope collecting(&terms);
  TANDEM_ASSIGN_OR_RETURN(StageMessage outputs, Run(kept->pass, leaves));
  if (has_loss()) {
    TANDEM_ASSIGN_OR_RETURN(const LossResult result, Loss(outputs[0], *kept));
    *score = result.score;
    outputs = {result.loss};
  }
  kept->inputs = std::move(leaves);
  kept->outputs = std::move(outputs);
  return Keep(terms, kept);
}

// Losses that were added: what backward begins from, too.
absl::Status PipelineStage::Keep(const LossTerms& terms, Kept* kept) {
  const double weight = kept->pass.weight;
  return CatchTorch([&] {
    for (const LossTerms::Term& each : terms.terms()) {
      added_losses_.push_back(
          {each.name, kept->pass.microbatch.index, weight, each.loss.detach()});
      if (!each.loss.requires_grad()) continue;
      kept->added.push_back(each.loss.mul(weight));
    }
  });
}

std::vector<AddedLoss> PipelineStage::TakeAddedLosses() {
  return std::exchange(added_losses_, {});
}

absl::StatusOr<StageMessage> PipelineStage::Begin(Kept kept, Score* score) {
  const int index = kept.pass.microbatch.index;
  CHECK_EQ(kept_.count(index), 0u)
      << name() << " has microbatch " << index << " already";
  StageMessage outputs;
  if (kept.pass.keeps_activations) {
    TANDEM_RETURN_IF_ERROR(RunWithGraph(&kept, score));
    outputs = Detached(kept.outputs);
  } else {
    const at::NoGradGuard no_grad;
    kept.inputs = Detached(kept.inputs);
    TANDEM_ASSIGN_OR_RETURN(outputs, Run(kept.pass, kept.inputs));
    if (has_loss()) {
      TANDEM_ASSIGN_OR_RETURN(const LossResult result, Loss(outputs[0], kept));
      *score = result.score;
    }
  }
  kept_[index] = std::move(kept);
  return outputs;
}

absl::StatusOr<StageMessage> PipelineStage::Forward(
    const StagePass& pass, const StageMessage& inputs) {
  Kept kept;
  kept.pass = pass;
  kept.inputs = inputs;
  Score none;
  return Begin(std::move(kept), &none);
}

absl::StatusOr<Score> PipelineStage::ForwardLoss(const StagePass& pass,
                                                 const StageMessage& inputs,
                                                 const at::Tensor& targets,
                                                 double weight) {
  Kept kept;
  kept.pass = pass;
  kept.inputs = inputs;
  kept.targets = targets;
  kept.weight = weight;
  Score score;
  TANDEM_RETURN_IF_ERROR(Begin(std::move(kept), &score).status());
  return score;
}

absl::StatusOr<StageMessage> PipelineStage::Infer(const StagePass& pass,
                                                  const StageMessage& inputs) {
  const at::NoGradGuard no_grad;
  return Run(pass, inputs);
}

absl::StatusOr<Score> PipelineStage::Judge(const at::Tensor& output,
                                           const at::Tensor& targets) const {
  const at::NoGradGuard no_grad;
  Kept kept;
  kept.targets = targets;
  TANDEM_ASSIGN_OR_RETURN(const LossResult result, Loss(output, kept));
  return result.score;
}

void PipelineStage::Clear() {
  kept_.clear();
  left_.clear();
  waiting_.clear();
  added_losses_.clear();
}

const Layer* PipelineStage::running_layer() const {
  return running_->load(std::memory_order_relaxed);
}

}  // namespace tandem
