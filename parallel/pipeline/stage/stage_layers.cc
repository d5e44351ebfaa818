// What a stage computes: its layers, one after the other or in groups whose
// activations are computed again.

#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/model/layer_flow.h"
#include "core/model/layer_list.h"
#include "core/precision/autocast.h"
#include "core/random/default_generator.h"
#include "core/random/random.h"
#include "parallel/activation_checkpointing/selective_checkpoint.h"
#include "parallel/pipeline/stage/stage.h"

namespace tandem {
namespace {

// Who asks which layer runs is told of this one while it lives.
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

// Of what a layer draws from LibTorch's default generator for these samples.
uint64_t SeedOfDraws(const Samples& samples, const std::string& layer) {
  return SipHash(samples.seed, static_cast<uint64_t>(samples.step),
                 absl::StrCat("draws of ", samples.first, " in ", layer));
}

}  // namespace

absl::StatusOr<StageMessage> PipelineStage::Run(const StagePass& pass,
                                                const StageMessage& inputs) {
  CHECK_EQ(inputs.size(), 1 + options_.incoming.size());
  const c10::OptionalDeviceGuard guard(device());
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  const AutocastGuard precision(device().type(), options_.param_dtype);
  Microbatch its = pass.microbatch;
  its.records = records_.get();
  const MicrobatchScope microbatch(its);
  std::optional<SampleScope> samples;
  if (pass.samples.has_value()) samples.emplace(*pass.samples);
  LayerFlow flow = {inputs[0]};
  for (size_t i = 0; i < options_.incoming.size(); ++i) {
    flow.skips[options_.incoming[i]] = inputs[i + 1];
  }
  absl::Status status = CatchTorch([&] {
    LayerRange plain;
    for (const LayerRange& group : options_.checkpointed) {
      plain.end = group.begin;
      flow = RunLayers(plain, pass.samples, std::move(flow));
      flow = RunCheckpointed(group, pass.samples, std::move(flow));
      plain.begin = group.end;
    }
    plain.end = static_cast<int64_t>(layers_.size());
    flow = RunLayers(plain, pass.samples, std::move(flow));
  });
  if (!status.ok()) {
    return Annotate(status, absl::StrCat("layer ", begun_->name));
  }
  StageMessage outputs = {flow.values};
  for (const std::string& name : options_.outgoing) {
    outputs.push_back(flow.skips.at(name));
  }
  return outputs;
}

LayerFlow PipelineStage::RunLayers(const LayerRange& range,
                                   const std::optional<Samples>& samples,
                                   LayerFlow flow) {
  for (auto i = static_cast<size_t>(range.begin);
       i < static_cast<size_t>(range.end); ++i) {
    const Layer& layer = layers_[i];
    std::optional<DefaultGeneratorScope> draws;
    if (samples.has_value()) draws.emplace(SeedOfDraws(*samples, layer.name));
    begun_ = &layer;
    const RunningLayer running(&layer, running_.get());
    flow.values = RunLayer(layer, flow.values, flow.skips);
    if (options_.crosses_borders) CrossBorder(layer, flow);
    for (const std::string& skip : last_pops_[i]) flow.skips.erase(skip);
  }
  return flow;
}

// What the layers draw is a function of the samples, if there are any.
LayerFlow PipelineStage::RunCheckpointed(const LayerRange& group,
                                         const std::optional<Samples>& samples,
                                         LayerFlow flow) {
  CheckpointOptions options;
  options.preserve_rng_state = !samples.has_value();
  const auto first = static_cast<size_t>(group.begin);
  const auto count = static_cast<size_t>(group.end - group.begin);
  return CheckpointLayers(
      options, absl::MakeConstSpan(layers_).subspan(first, count),
      [this, group, samples](LayerFlow its) {
        return RunLayers(group, samples, std::move(its));
      },
      std::move(flow));
}

}  // namespace tandem
