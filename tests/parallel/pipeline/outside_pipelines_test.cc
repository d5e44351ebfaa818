// What torchgpipe's tests ask of a pipeline, where other tests do not yet:
// tests/test_gpipe.py (how often layers run), tests/skip (a skip over cuts).

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/model.h"
#include "parallel/pipeline/model_parallel.h"
#include "parallel/schedule/schedules.h"
#include "tests/parallel/pipeline/rank_pipeline.h"

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

// Skip connections that several layers take: an encoder's output for every
// layer of the decoder.

constexpr int64_t kSkipWidth = 6;
constexpr int64_t kClasses = 5;

LayerSpec Leaves(const std::string& name, const std::string& skip) {
  LayerLinks links;
  links.stash = {skip};
  return WithWeight(
      name, {kSkipWidth, kSkipWidth}, links,
      [skip](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
        const at::Tensor y = at::linear(x, weight).tanh();
        skips[skip] = y;
        return y;
      });
}

// Takes it out of the map, or leaves it there, which comes to the same.
LayerSpec Takes(const std::string& name, const std::string& skip,
                bool takes_out, int64_t width = kSkipWidth) {
  LayerLinks links;
  links.pop = {skip};
  return WithWeight(
      name, {width, kSkipWidth}, links,
      [=](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
        const at::Tensor past = skips.at(skip);
        if (takes_out) skips.erase(skip);
        return at::linear(x * past, weight).tanh();
      });
}

// "memory" is taken four times, over all cuts, and "short" twice; then its name
// is used again.
LayerSpecs Specs() {
  return {TanhLinear("fc", kSkipWidth, kSkipWidth),
          Leaves("encoder", "memory"),
          Leaves("left", "short"),
          Takes("one", "memory", true),
          Takes("short1", "short", false),
          Takes("two", "memory", false),
          Takes("short2", "short", true),
          Leaves("again", "short"),
          Takes("three", "memory", true),
          Takes("short3", "short", true),
          TanhLinear("fc2", kSkipWidth, kSkipWidth),
          Takes("four", "memory", true, kClasses)};
}

std::vector<StepsStep> Steps() {
  StepsStep train, evaluate;
  evaluate.trains = false;
  for (int i = 0; i < 4; ++i) {
    Batch batch;
    batch.size = 3;
    batch.inputs =
        at::randn({3, kSkipWidth}, GeneratorFor(1, absl::StrCat("batch ", i)));
    batch.targets = at::arange(3).add(i).remainder(kClasses);
    train.microbatches.push_back(batch);
    evaluate.microbatches.push_back(std::move(batch));
  }
  return {train, evaluate, train};
}

class SharedSkipsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(4); }  // before any backward
};

// 1F1B goes through the microbatches in their order: then the sums of the
// takers' gradients have the bits of the model in one piece, too.
TEST_F(SharedSkipsTest, OverRanks) {
  const auto expected = StepsInOnePiece(Specs(), Steps());
  for (const std::string& name : ScheduleNames()) {
    for (int ranks : {2, 4}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", ranks, " ranks"));
      RankPipelineCase each;
      each.schedule = name;
      each.ranks = ranks;
      ExpectSame(StepsInStages(Specs(), Steps(), each), expected,
                 name == "1f1b");
    }
  }
}

TEST_F(SharedSkipsTest, OverDevices) {
  const auto expected = StepsInOnePiece(Specs(), Steps());
  for (const std::string& name : ScheduleNames()) {
    for (const auto& devices :
         {SimDevices(4), std::vector<c10::Device>(3, c10::kCPU)}) {
      SCOPED_TRACE(absl::StrCat(name, ", on ", devices[0].str()));
      RankPipelineCase each;
      each.schedule = name;
      each.ranks = 1;
      each.microbatches = 4;
      each.devices = devices;
      if (name == "interleaved_1f1b") each.devices.resize(2, devices[0]);
      ExpectSame(StepsInStages(Specs(), Steps(), each), expected,
                 name == "1f1b");
    }
  }
}

TEST_F(SharedSkipsTest, WithActivationCheckpointing) {
  RankPipelineCase each;
  each.ranks = 4;
  each.checkpointing = ActivationCheckpointing::kAlways;
  ExpectSame(StepsInStages(Specs(), Steps(), each),
             StepsInOnePiece(Specs(), Steps()), /*same_bits=*/true);
}

TEST_F(SharedSkipsTest, InPartsOnSeveralDevices) {
  const Batch batch = Steps()[0].microbatches[0];
  const LayerList whole = MakeLayers(Specs(), 3);
  const auto spread =
      SpreadOverDevices(MakeLayers(Specs(), 3), {4, 6, 10}, SimDevices(4));
  ASSERT_TRUE(spread.ok()) << spread.status();
  const at::Tensor y = Forward(whole, batch.inputs);
  const at::Tensor there = Forward(*spread, batch.inputs);
  EXPECT_TRUE(there.cpu().equal(y));
  CrossEntropy(y, batch.targets).loss.backward();
  CrossEntropy(there.cpu(), batch.targets).loss.backward();
  const NamedTensors expected = NamedParameters(whole);
  const NamedTensors found = NamedParameters(*spread);
  // Devices' threads of backward add in the order in which they get there.
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(found[i].second.grad().cpu().allclose(expected[i].second.grad(),
                                                      1e-5, 1e-6))
        << expected[i].first;
  }
}

}  // namespace
}  // namespace tandem::outside_pipelines_test
