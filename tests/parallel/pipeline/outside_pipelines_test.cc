// What torchgpipe's tests ask of a pipeline, where other tests do not yet:
// tests/test_gpipe.py (how often layers run), tests/skip (a skip over cuts).

#include <ATen/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/schedules.h"

namespace tandem::outside_pipelines_test {
namespace {

constexpr int64_t kWidth = 4;

std::unique_ptr<PipelineExecutor> Make(const LayerSpecs& specs,
                                       const Cuts& cuts, int microbatches,
                                       ActivationCheckpointing checkpointing) {
  const int stages = static_cast<int>(cuts.size()) + 1;
  const Schedule schedule = *GPipe({stages, 1, microbatches});
  PipelineModelOptions model;
  model.cuts = cuts;
  PipelineLayout layout;
  layout.devices.assign(static_cast<size_t>(stages), c10::kCPU);
  PipelineOptions options;
  options.checkpointing = checkpointing;
  auto made = PipelineExecutor::Create(
      schedule, *MakeStages(specs, schedule, layout, model, CrossEntropy),
      layout, options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::vector<Batch> BatchesOf(int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back({at::randn({3, kWidth}, GeneratorFor(1, "inputs")),
                       at::zeros({3}, at::kLong), 3});
  }
  return batches;
}

// checkpoint= always, except_last, never: of two microbatches as many run twice
// as are not kept; in evaluation none does.
TEST(TorchgpipeTest, LayersRunAsOftenAsCheckpointingAsks) {
  const std::pair<ActivationCheckpointing, int> again[] = {
      {ActivationCheckpointing::kAlways, 2},
      {ActivationCheckpointing::kExceptLast, 1},
      {ActivationCheckpointing::kNever, 0}};
  for (const auto& [checkpointing, times] : again) {
    std::atomic<int> calls = 0;
    LayerSpecs specs = {LinearLayer("fc", kWidth, kWidth)};
    specs[0].make = [&calls, make = specs[0].make](uint64_t seed) {
      Layer layer = make(seed);
      layer.forward = [&calls, run = layer.forward](const at::Tensor& x) {
        ++calls;
        return run(x);
      };
      return layer;
    };
    const auto executor = Make(specs, {}, 2, checkpointing);
    ASSERT_TRUE(executor->TrainStep(BatchesOf(2)).ok());
    EXPECT_EQ(calls, 2 + times);
    calls = 0;
    ASSERT_TRUE(executor->Infer(BatchesOf(2), false).ok());
    EXPECT_EQ(calls, 2);
  }
}

LayerSpec Plain(const std::string& name, LayerLinks links,
                std::function<at::Tensor(const at::Tensor&, Skips&)> forward) {
  LayerSpec spec;
  spec.name = name;
  spec.links = std::move(links);
  spec.make = [name, forward](uint64_t /*seed*/) {
    Layer layer;
    layer.name = name;
    layer.forward_with_skips = forward;
    return layer;
  };
  return spec;
}

// 1to3: the first layer leaves a skip, the third takes it.
LayerSpecs OneToThree() {
  LayerSpecs specs = {
      LinearLayer("fc1", kWidth, kWidth),
      Plain("leave", {{"1to3"}, {}, {}},
            [](const at::Tensor& x, Skips& skips) {
              skips["1to3"] = x.mul(2);
              return x.relu();
            }),
      LinearLayer("fc2", kWidth, kWidth),
      Plain("take", {{}, {"1to3"}, {}}, [](const at::Tensor& x, Skips& skips) {
        return x.add(skips.extract("1to3").mapped());
      })};
  return specs;
}

TEST(TorchgpipeTest, ASkipCrossesAnyCut) {
  const LayerList whole = MakeLayers(OneToThree(), 0);
  const auto batches = BatchesOf(4);
  for (const Batch& each : batches) {
    CrossEntropy(Forward(whole, each.inputs), each.targets)
        .loss.mul(0.25)
        .backward();
  }
  const NamedTensors expected = NamedParameters(whole);
  for (const Cuts& cuts : std::vector<Cuts>{{}, {2}, {3}, {2, 3}, {1, 2, 3}}) {
    for (const auto checkpointing :
         {ActivationCheckpointing::kNever, ActivationCheckpointing::kExceptLast,
          ActivationCheckpointing::kAlways}) {
      const auto executor = Make(OneToThree(), cuts, 4, checkpointing);
      const auto done = executor->TrainStep(batches);
      ASSERT_TRUE(done.ok()) << done.status();
      const NamedTensors found = NamedParameters(executor->stages());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(found[i].second.grad().allclose(expected[i].second.grad(),
                                                    1e-5, 1e-7))
            << expected[i].first << ", " << cuts.size() + 1 << " stages";
      }
    }
  }
}

}  // namespace
}  // namespace tandem::outside_pipelines_test
