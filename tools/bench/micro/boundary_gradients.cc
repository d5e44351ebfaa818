// What crosses a pipeline's cuts, and what it costs: a step whose images take
// gradients beside one whose images do not, and the bytes of four ranks that
// all read a floating mask.
//
//   bazel run //tools/bench:boundary_gradients

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <benchmark/benchmark.h>
#include <glog/logging.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/registry.h"
#include "parallel/balance/cut.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/schedules.h"

namespace tandem {
namespace {

constexpr int64_t kBatch = 32;
constexpr int kMicrobatches = 4;
constexpr int kWarmUp = 3;

absl::StatusOr<std::unique_ptr<PipelineExecutor>> Make(
    const LayerSpecs& specs, int stages, const PipelineLayout& layout) {
  TANDEM_ASSIGN_OR_RETURN(const Schedule schedule,
                          MakeSchedule("1f1b", {stages, 1, kMicrobatches}));
  PipelineModelOptions model;
  TANDEM_ASSIGN_OR_RETURN(
      model.cuts, UniformCuts(static_cast<int64_t>(specs.size()), stages));
  TANDEM_ASSIGN_OR_RETURN(
      auto made, MakeStages(specs, schedule, layout, model, CrossEntropy));
  return PipelineExecutor::Create(schedule, std::move(made), layout);
}

absl::Status Train(PipelineExecutor& executor, const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, kMicrobatches)));
  TANDEM_RETURN_IF_ERROR(executor.TrainStep(parts).status());
  for (auto& each : NamedParameters(executor.stages())) {
    each.second.mutable_grad().reset();
  }
  return absl::OkStatus();
}

void FirstStage(benchmark::State& state, const std::string& name) {
  ModelOptions options;
  options.name = name;
  options.input_shape = {3, 32, 32};
  options.classes = 10;
  const LayerSpecs specs = MakeModel(options).value();
  PipelineLayout layout;
  layout.devices.assign(2, c10::kCPU);
  const auto executor = Make(specs, 2, layout).value();
  const bool taken = state.range(0) != 0;
  const Batch batch = {at::rand({kBatch, 3, 32, 32}).requires_grad_(taken),
                       at::randint(10, {kBatch}, at::kLong), kBatch};
  for (int i = 0; i < kWarmUp; ++i) CHECK(Train(*executor, batch).ok());
  for (auto iteration : state) CHECK(Train(*executor, batch).ok());
}

// Layers of one width that all read a mask.
LayerSpecs MaskedLayers(int64_t width) {
  LayerSpecs specs;
  for (const char* name : {"a", "b", "c", "d"}) {
    LayerSpec spec = LinearLayer(name, width, width);
    spec.links.reads = {"mask"};
    spec.make = [make = spec.make](uint64_t seed) {
      Layer layer = make(seed);
      layer.forward_with_skips = [forward = layer.forward](const at::Tensor& x,
                                                           Skips& skips) {
        return forward(x * skips.at("mask"));
      };
      return layer;
    };
    specs.push_back(spec);
  }
  return specs;
}

struct Measured {
  double seconds = 0;
  ChannelTraffic sent;
};

// Steps over four ranks; what the first rank measures, and all of them send.
absl::Status TrainMasked(int steps, std::vector<Measured>* all) {
  constexpr int64_t kWidth = 1024;
  CommunicatorOptions options;
  options.backend = "shm";
  options.all_local = true;
  const auto train = [&](Communicator& world) -> absl::Status {
    PipelineLayout layout;
    layout.devices = {c10::kCPU};
    layout.group = &world;
    const int ranks = world.size();
    TANDEM_ASSIGN_OR_RETURN(const auto executor,
                            Make(MaskedLayers(kWidth), ranks, layout));
    Batch batch = {at::rand({kBatch, kWidth}),
                   at::randint(kWidth, {kBatch}, at::kLong), kBatch};
    batch.further_inputs["mask"] = at::ones({kBatch, kWidth});
    for (int i = 0; i < kWarmUp; ++i) {
      TANDEM_RETURN_IF_ERROR(Train(*executor, batch));
    }
    const auto begin = std::chrono::steady_clock::now();
    const ChannelTraffic before = executor->sent();
    for (int i = 0; i < steps; ++i) {
      TANDEM_RETURN_IF_ERROR(Train(*executor, batch));
    }
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    ChannelTraffic sent = executor->sent();
    sent.messages -= before.messages;
    sent.bytes -= before.bytes;
    (*all)[static_cast<size_t>(world.rank())] = {took.count(), sent};
    return world.Barrier();
  };
  return RunThreadRanks(static_cast<int>(all->size()), train, options);
}

void MaskOverFourRanks(benchmark::State& state) {
  constexpr int kSteps = 50;
  int64_t bytes = 0;
  for (auto iteration : state) {
    std::vector<Measured> all(4);
    const absl::Status done = TrainMasked(kSteps, &all);
    CHECK(done.ok()) << done;
    state.SetIterationTime(all[0].seconds / kSteps);
    bytes = 0;
    for (const Measured& each : all) bytes += each.sent.bytes / kSteps;
  }
  state.counters["bytes_a_step"] = benchmark::Counter(
      static_cast<double>(bytes), benchmark::Counter::kDefaults,
      benchmark::Counter::kIs1024);
}

BENCHMARK_CAPTURE(FirstStage, mlp_deep, std::string("mlp_deep"))
    ->ArgName("taken")
    ->Arg(0)
    ->Arg(1)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(FirstStage, resnet18, std::string("resnet18"))
    ->ArgName("taken")
    ->Arg(0)
    ->Arg(1)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(MaskOverFourRanks)
    ->UseManualTime()
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  google::InitGoogleLogging(argv[0]);
  at::set_num_threads(1);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
