#include "parallel/pipeline/stage/stage.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/device_trace.h"
#include "core/device/memory_category.h"
#include "core/instrument/trace.h"
#include "core/model/layer_flow.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "core/precision/autocast.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "parallel/activation_checkpointing/selective_checkpoint.h"

namespace tandem {
namespace {

StageMessage Leaves(const StageMessage& message) {
  StageMessage leaves;
  for (const at::Tensor& each : message) leaves.push_back(DetachedLeaf(each));
  return leaves;
}

// Does a skip go through the layers without one that takes or leaves it?
bool IsPassedThrough(const std::string& skip, const LayerList& layers,
                     const StageOptions& options) {
  return !options.loss && absl::c_linear_search(options.incoming, skip) &&
         absl::c_none_of(layers, [&](const Layer& each) {
           return absl::c_linear_search(each.links.pop, skip) ||
                  absl::c_linear_search(each.links.stash, skip);
         });
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

// A loss that is cut off from the outputs would train nothing, in silence.
absl::Status CheckDependsOn(const StageMessage& outputs, const at::Tensor& loss,
                            const LossTerms& terms) {
  const bool adds_losses = absl::c_any_of(
      terms.terms(), [](const LossTerm& each) { return !each.is_sum; });
  const bool takes = absl::c_any_of(
      outputs, [](const at::Tensor& each) { return each.requires_grad(); });
  if (adds_losses || !takes || loss.requires_grad()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the loss requires no gradient, though the outputs that it is to be made "
      "of do: is it detached, or made of an argmax?");
}

// What the layers of a pass run in.
class LayersScope {
 public:
  LayersScope(const StageOptions& options, const StagePass& pass,
              StatisticsRecords* records)
      : device_(options.device),
        category_(MemoryCategory::kActivations),
        precision_(options.device.type(), options.param_dtype),
        context_([&](ComputeContext& context) {
          context.microbatch = pass.microbatch;
          context.microbatch->records = records;
          context.tensor_parallel = options.tensor_parallel;
          if (pass.samples.has_value()) context.samples = pass.samples;
        }) {}

 private:
  const c10::OptionalDeviceGuard device_;
  const MemoryCategoryScope category_;
  const AutocastGuard precision_;
  const ComputeContext::Scope context_;
};

LayerFlow IncomingFlow(const StageMessage& inputs,
                       const std::vector<std::string>& incoming) {
  CHECK_EQ(inputs.size(), 1 + incoming.size());
  LayerFlow flow = {inputs[0]};
  for (size_t i = 0; i < incoming.size(); ++i) {
    flow.skips[incoming[i]] = inputs[i + 1];
  }
  return flow;
}

StageMessage OutgoingMessage(const LayerFlow& flow,
                             const std::vector<std::string>& outgoing) {
  StageMessage message = {flow.values};
  for (const std::string& name : outgoing) {
    message.push_back(flow.skips.at(name));
  }
  return message;
}

// While it lives, running_layer() is this one.
class RunningLayer {
 public:
  RunningLayer(const Layer* layer, std::atomic<const Layer*>* running)
      : running_(*running) {
    running_.store(layer, std::memory_order_relaxed);
  }
  ~RunningLayer() { running_.store(nullptr, std::memory_order_relaxed); }
  RunningLayer(const RunningLayer&) = delete;
  RunningLayer& operator=(const RunningLayer&) = delete;

 private:
  std::atomic<const Layer*>& running_;
};

// The seed of what a layer draws from LibTorch's default generator for these
// samples.
uint64_t SeedOfDraws(const Samples& samples, const std::string& layer) {
  return SipHash(samples.seed, static_cast<uint64_t>(samples.step),
                 absl::StrCat("draws of ", samples.first, " in ", layer));
}

}  // namespace

BackwardRoot RootOfOutput(const at::Tensor& tensor, size_t output) {
  return {torch::autograd::impl::gradient_edge(tensor), output, {}};
}

BackwardRoot RootOfLoss(const at::Tensor& loss) {
  TORCH_CHECK(loss.numel() == 1, "a loss must be one number, not ",
              loss.sizes());
  return {torch::autograd::impl::gradient_edge(loss), std::nullopt,
          at::ones_like(loss.detach())};
}

void ScaleLosses(std::vector<BackwardRoot>& roots, const at::Tensor& scale) {
  if (!scale.defined()) return;
  for (BackwardRoot& each : roots) {
    if (each.one.defined()) each.one.mul_(scale);
  }
}

PipelineStage::PipelineStage(LayerList layers, StageOptions options)
    : layers_(std::move(layers)),
      options_(std::move(options)),
      last_pops_(LastPops(LinksByLayer(layers_), options_.outgoing)),
      running_(std::make_unique<std::atomic<const Layer*>>(nullptr)) {
  CHECK_GE(options_.weight_gradient_batch, 1);
  if (options_.records_statistics) {
    records_ = std::make_unique<StatisticsRecords>(layers_);
  }
  int64_t done = 0;
  for (const LayerRange& group : options_.checkpointed) {
    if (done < group.begin) parts_.push_back({{done, group.begin}});
    parts_.push_back({group, /*is_checkpointed=*/true});
    done = group.end;
  }
  parts_.push_back({{done, static_cast<int64_t>(layers_.size())}});
  for (size_t out = 0; out < options_.outgoing.size(); ++out) {
    const std::string& skip = options_.outgoing[out];
    if (!IsPassedThrough(skip, layers_, options_)) continue;
    const auto in = absl::c_find(options_.incoming, skip);
    passing_[out + 1] = static_cast<size_t>(in - options_.incoming.begin()) + 1;
  }
}

absl::StatusOr<StageOutput> PipelineStage::Forward(
    const StagePass& pass, const StageMessage& inputs,
    std::optional<LossTargets> targets) {
  const int index = pass.microbatch.index;
  CHECK_EQ(kept_.count(index), 0u)
      << name() << " has microbatch " << index << " already";
  Kept kept;
  kept.pass = pass;
  kept.inputs = pass.keeps == StageKeeps::kNothing ? inputs : Leaves(inputs);
  kept.targets = std::move(targets);
  StageOutput output;
  if (pass.keeps == StageKeeps::kActivations) {
    TANDEM_ASSIGN_OR_RETURN(output, Compute(kept, pass.keeps));
  } else {
    const at::NoGradGuard no_grad;
    const KeptStatistics::Recording statistics(&kept.statistics);
    TANDEM_ASSIGN_OR_RETURN(output, Compute(kept, pass.keeps));
  }
  if (pass.keeps == StageKeeps::kNothing) return output;
  output.message = OutputLeaves(output.message, kept);
  kept_[index] = std::move(kept);
  return output;
}

// The layers, and the loss where there are targets. With a graph, if
// activations are kept: `kept` gets what backward begins from.
absl::StatusOr<StageOutput> PipelineStage::Compute(Kept& kept,
                                                   StageKeeps keeps) {
  const bool has_graph = keeps == StageKeeps::kActivations;
  if (has_graph &&
      (options_.splits_backward || options_.weight_gradient_batch > 1)) {
    kept.sink = std::make_shared<WeightGradientSink>();
  }
  // A backward in two parts is not one layer behind the other.
  if (has_graph && !options_.splits_backward && Trace::OfProcess().is_on()) {
    kept.slices = std::make_shared<BackwardSlices>(options_.track, device());
  }
  LossTerms terms;
  const ComputeContext::Scope leaving([&](ComputeContext& context) {
    if (has_graph) context.sink = kept.sink;
    // What keeps its inputs is computed again, and adds its losses then.
    if (keeps != StageKeeps::kInputs) context.terms = &terms;
  });
  std::optional<InputWatch> watch;
  if (keeps == StageKeeps::kInputs) watch.emplace(kept.inputs);
  StageOutput output;
  {
    const LayersScope scope(options_, kept.pass, records_.get());
    const absl::Status done = CatchTorch([&] {
      LayerFlow flow = IncomingFlow(kept.inputs, options_.incoming);
      for (const Part& part : parts_) {
        flow = RunLayers(part, kept.pass.samples, std::move(flow),
                         kept.slices.get());
      }
      output.message = OutgoingMessage(flow, options_.outgoing);
    });
    if (!done.ok()) {
      return Annotate(done, absl::StrCat("layer ", begun_->name));
    }
  }
  if (watch.has_value()) TANDEM_RETURN_IF_ERROR(watch->Check());
  if (kept.targets.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(const LossResult result,
                            Loss(output.message, kept));
    output.score = DeferredScore{result.score, result.sums};
    if (has_graph) {
      TANDEM_RETURN_IF_ERROR(
          CheckDependsOn(output.message, result.loss, terms));
      output.message = {result.loss};
    }
  }
  if (has_graph) {
    TANDEM_RETURN_IF_ERROR(KeepRoots(output.message, terms, kept));
  }
  KeepTerms(terms, kept.pass);
  return output;
}

LayerFlow PipelineStage::RunLayers(const Part& part,
                                   const std::optional<Samples>& samples,
                                   LayerFlow flow, BackwardSlices* slices) {
  if (part.is_checkpointed) {
    return RunCheckpointed(part, samples, std::move(flow));
  }
  for (auto i = static_cast<size_t>(part.range.begin);
       i < static_cast<size_t>(part.range.end); ++i) {
    const Layer& layer = layers_[i];
    std::optional<DefaultGeneratorScope> draws;
    if (samples.has_value()) draws.emplace(SeedOfDraws(*samples, layer.name));
    begun_ = &layer;
    const RunningLayer running(&layer, running_.get());
    const DeviceTraceScope slice(options_.track, layer.name, device());
    if (parameters_ != nullptr) parameters_->BeforeLayer(i);
    flow.values = RunLayer(layer, flow.values, flow.skips);
    if (parameters_ != nullptr) parameters_->AfterLayer(i, flow);
    if (slices != nullptr) slices->Watch(layer.name, flow.values);
    if (options_.crosses_borders) CrossBorder(layer, flow);
    for (const std::string& skip : last_pops_[i]) flow.skips.erase(skip);
  }
  return flow;
}

// What the layers draw is a function of the samples, if there are any.
LayerFlow PipelineStage::RunCheckpointed(const Part& group,
                                         const std::optional<Samples>& samples,
                                         LayerFlow flow) {
  CheckpointOptions options;
  options.preserve_rng_state = !samples.has_value();
  const auto first = static_cast<size_t>(group.range.begin);
  const auto count = static_cast<size_t>(group.range.end) - first;
  return CheckpointLayers(
      options, absl::MakeConstSpan(layers_).subspan(first, count),
      [this, layers = Part{group.range}, samples](LayerFlow inside) {
        return RunLayers(layers, samples, std::move(inside),
                         /*slices=*/nullptr);
      },
      std::move(flow));
}

absl::StatusOr<LossResult> PipelineStage::Loss(const StageMessage& outputs,
                                               const Kept& kept) const {
  const c10::OptionalDeviceGuard guard(device());
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  const DeviceTraceScope slice(options_.track, "loss", device());
  TensorsByName further;
  for (size_t i = 0; i < options_.outgoing.size(); ++i) {
    further[options_.outgoing[i]] = outputs[i + 1];
  }
  const ComputeContext::Scope divided([&](ComputeContext& context) {
    context.tensor_parallel = options_.tensor_parallel;
  });
  const bool trains = kept.pass.keeps != StageKeeps::kNothing;
  const LossFunction& loss =
      trains ? options_.loss : options_.loss.evaluation();
  return CatchTorchOr(
      [&] {
        LossResult result =
            loss(MakeLossArguments(outputs[0], further, *kept.targets));
        result.loss =
            WeighLoss(result.loss, kept.pass.loss_weight, outputs[0], further);
        return result;
      },
      "loss");
}

// Losses that were added count in training alone.
void PipelineStage::KeepTerms(const LossTerms& terms, const StagePass& pass) {
  for (const LossTerm& each : terms.terms()) {
    if (pass.keeps == StageKeeps::kNothing && !each.is_sum) continue;
    terms_.push_back({each.name, each.loss.detach(), each.is_sum,
                      pass.microbatch.index, pass.weight});
  }
}

std::vector<LossTerm> PipelineStage::TakeTerms() {
  return std::exchange(terms_, {});
}

const Layer* PipelineStage::running_layer() const {
  return running_->load(std::memory_order_relaxed);
}

}  // namespace tandem
