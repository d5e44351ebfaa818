// What crosses the cuts of a pipeline: how long it lives, and what does not
// cross them.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <c10/core/Storage.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "tests/parallel/pipeline/rank_pipeline.h"

namespace tandem::boundary_tensors_test {
namespace {

using testing::Each;

constexpr int64_t kWidth = 6;
constexpr int64_t kRows = 2;  // of a microbatch

StepsStep StepOf(int microbatches, bool with_mask = false) {
  StepsStep step;
  for (int i = 0; i < microbatches; ++i) {
    const at::Generator generator = GeneratorFor(1, absl::StrCat("batch ", i));
    Batch batch;
    batch.size = kRows;
    batch.inputs = at::randn({kRows, kWidth}, generator);
    batch.targets = at::arange(kRows).add(i).remainder(kWidth);
    if (with_mask) {
      batch.further_inputs["mask"] = at::randn({kRows, kWidth}, generator);
    }
    step.microbatches.push_back(std::move(batch));
  }
  return step;
}

class BoundaryTensorsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(2); }  // before any backward
};

// How many of the tensors that it was shown are alive, at most.
class AliveCount {
 public:
  void See(const at::Tensor& tensor) {
    seen_.push_back(tensor.storage().getWeakStorageImpl());
    const auto alive =
        std::count_if(seen_.begin(), seen_.end(),
                      [](const auto& each) { return each.use_count() > 0; });
    most_ = std::max(most_, static_cast<int>(alive));
  }
  int most() const { return most_; }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
  int most_ = 0;
};

struct OfRank {
  AliveCount outputs;
  AliveCount gradients;  // of inputs
};

// Keeps its input and its weight for backward, not its output.
LayerSpec Watched(const std::string& name, OfRank* of_rank) {
  return WithWeight(
      name, {kWidth}, {},
      [of_rank](const at::Tensor& weight, const at::Tensor& x, Skips&) {
        if (x.requires_grad()) {
          x.register_hook([of_rank](const at::Tensor& gradient) {
            of_rank->gradients.See(gradient);
          });
        }
        at::Tensor y = x * weight;
        of_rank->outputs.See(y);
        return y;
      });
}

TEST_F(BoundaryTensorsTest, LiveAsLongAsTheScheduleHasIt) {
  for (const char* backend : {"shm", "gloo"}) {
    SCOPED_TRACE(backend);
    std::array<OfRank, 4> of_rank;
    LayerSpecs specs;
    for (size_t i = 0; i < of_rank.size(); ++i) {
      specs.push_back(Watched(absl::StrCat("layer", i), &of_rank[i]));
    }
    RankPipelineCase each;
    each.ranks = 4;
    each.microbatches = 24;
    each.backend = backend;
    std::array<int, 4> bounds;
    const auto status = RunRankPipeline(
        specs, each, [&](PipelineExecutor& executor, int rank) -> absl::Status {
          bounds[static_cast<size_t>(rank)] =
              executor.facts().peak_activations[static_cast<size_t>(rank)];
          TANDEM_RETURN_IF_ERROR(
              executor.TrainStep(StepOf(24).microbatches).status());
          return executor.TrainStep(StepOf(24).microbatches).status();
        });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(bounds[1], 3);
    // A gradient has gone when the stage before has taken it, which it does
    // within as many microbatches as it holds.
    EXPECT_LE(of_rank[1].outputs.most(), bounds[1]);
    EXPECT_LE(of_rank[1].gradients.most(), bounds[0]);
    EXPECT_GE(of_rank[1].gradients.most(), 1);
    EXPECT_LE(of_rank[2].outputs.most(), bounds[2]);
    EXPECT_LE(of_rank[2].gradients.most(), bounds[1]);
  }
}

// Large outputs, which backward needs no value of: all forwards come first.
TEST_F(BoundaryTensorsTest, OutputsAreNotKeptForBackward) {
  constexpr int64_t kLarge = 1 << 16;
  constexpr int kMicrobatches = 8;
  const std::vector<c10::Device> devices = SimDevices(2);
  int64_t least = 0;
  int64_t most = 0;
  const LayerSpecs specs = {
      WithWeight("wide", {kLarge, kWidth}, {},
                 [&](const at::Tensor& weight, const at::Tensor& x, Skips&) {
                   at::Tensor y = at::linear(x, weight);
                   const int64_t now = sim::DeviceMemoryStatistics(0).now.total;
                   if (least == 0) least = now;
                   most = std::max(most, now);
                   return y;
                 }),
      WithWeight("narrow", {kWidth, kLarge}, {},
                 [](const at::Tensor& weight, const at::Tensor& x, Skips&) {
                   return at::linear(x, weight);
                 })};
  RankPipelineCase each;
  each.schedule = "gpipe";
  each.ranks = 1;
  each.microbatches = kMicrobatches;
  each.devices = devices;
  const auto outcome = StepsInStages(specs, {StepOf(kMicrobatches)}, each);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GT(least, 0);
  EXPECT_LT(most - least, kRows * kLarge * 4);
}

// Whether each stage's input took a gradient, in the order of stages.
LayerSpec TellsInput(const std::string& name, int* takes_gradient,
                     bool is_trained = true) {
  return WithWeight(
      name, {kWidth, kWidth}, {},
      [takes_gradient](const at::Tensor& weight, const at::Tensor& x, Skips&) {
        *takes_gradient = x.requires_grad() ? 1 : 0;
        return at::linear(x, weight).tanh();
      },
      is_trained);
}

TEST_F(BoundaryTensorsTest, ABatchTakesNoGradient) {
  for (int ranks : {1, 2}) {
    std::array<int, 2> takes = {-1, -1};
    RankPipelineCase each;
    each.ranks = ranks;
    each.devices = SimDevices(2);
    const LayerSpecs specs = {TellsInput("first", &takes[0]),
                              TellsInput("second", &takes[1])};
    const auto outcome = StepsInStages(specs, {StepOf(4)}, each);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(takes[0], 0);
    EXPECT_EQ(takes[1], 1);
  }
}

TEST_F(BoundaryTensorsTest, NothingGoesBackToFrozenStages) {
  for (const auto checkpointing :
       {ActivationCheckpointing::kNever, ActivationCheckpointing::kExceptLast,
        ActivationCheckpointing::kAlways}) {
    std::array<int, 3> takes = {-1, -1, -1};
    const LayerSpecs specs = {TellsInput("first", &takes[0], false),
                              TellsInput("second", &takes[1], false),
                              TellsInput("third", &takes[2])};
    RankPipelineCase each;
    each.ranks = 3;
    each.checkpointing = checkpointing;
    ExpectSame(StepsInStages(specs, {StepOf(4)}, each),
               StepsInOnePiece(specs, {StepOf(4)}), /*same_bits=*/true);
    EXPECT_THAT(takes, Each(0));
    const auto status = RunRankPipeline(
        specs, each, [&](PipelineExecutor& executor, int rank) -> absl::Status {
          TANDEM_RETURN_IF_ERROR(
              executor.TrainStep(StepOf(4).microbatches).status());
          // Activations, and their form.
          EXPECT_EQ(executor.sent().messages, rank == 2 ? 0 : 4 + 1);
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
  }
}

LayerSpecs InPlaceSpecs() {
  return {WithWeight("first", {kWidth, kWidth}, {},
                     [](const at::Tensor& weight, const at::Tensor& x, Skips&) {
                       at::Tensor y = x;
                       return at::linear(y.mul_(1.5), weight).tanh();
                     }),
          TanhLinear("second", kWidth, kWidth)};
}

TEST_F(BoundaryTensorsTest, TheFirstLayerMayWorkInPlace) {
  for (int ranks : {1, 2}) {
    RankPipelineCase each;
    each.ranks = ranks;
    each.devices = SimDevices(2);
    ExpectSame(StepsInStages(InPlaceSpecs(), {StepOf(4)}, each),
               StepsInOnePiece(InPlaceSpecs(), {StepOf(4)}),
               /*same_bits=*/true);
  }
}

// It would compute something else the second time.
TEST_F(BoundaryTensorsTest, ButNotWithActivationCheckpointing) {
  RankPipelineCase each;
  each.checkpointing = ActivationCheckpointing::kAlways;
  const auto outcome = StepsInStages(InPlaceSpecs(), {StepOf(4)}, each);
  EXPECT_THAT(outcome.status(), Says("changes the stage's input in place"));
}

// A mask of real numbers for the last of four stages, and a skip connection
// that takes no gradient.
TEST_F(BoundaryTensorsTest, WhatTakesNoGradientDoesNotComeBack) {
  LayerLinks leaves, takes;
  leaves.stash = {"scale"};
  takes.pop = {"scale"};
  takes.reads = {"mask"};
  const LayerSpecs specs = {
      WithWeight(
          "leaves", {kWidth, kWidth}, leaves,
          [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
            skips["scale"] = x.detach().abs();
            return at::linear(x, weight).tanh();
          }),
      TanhLinear("second", kWidth, kWidth), TanhLinear("third", kWidth, kWidth),
      WithWeight(
          "takes", {kWidth, kWidth}, takes,
          [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
            const at::Tensor scale = skips.extract("scale").mapped();
            return at::linear(x * scale * skips.at("mask"), weight);
          })};
  constexpr int kMicrobatches = 8;
  const StepsStep step = StepOf(kMicrobatches, /*with_mask=*/true);
  RankPipelineCase each;
  each.ranks = 4;
  each.microbatches = kMicrobatches;
  ExpectSame(StepsInStages(specs, {step, step}, each),
             StepsInOnePiece(specs, {step, step}), /*same_bits=*/true);
  const auto status = RunRankPipeline(
      specs, each, [&](PipelineExecutor& executor, int rank) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(executor.TrainStep(step.microbatches).status());
        const ChannelTraffic before = executor.sent();
        TANDEM_RETURN_IF_ERROR(executor.TrainStep(step.microbatches).status());
        const ChannelTraffic after = executor.sent();
        const int there = rank == 3 ? 0 : 3 * kMicrobatches + 1;
        const int back = rank == 0 ? 0 : kMicrobatches;
        EXPECT_EQ(after.messages - before.messages, there + back) << rank;
        if (rank == 3) {
          EXPECT_EQ(after.bytes - before.bytes,
                    kMicrobatches * kRows * kWidth * 4);
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(BoundaryTensorsTest, TooManyAreAnErrorAtTheStart) {
  LayerLinks leaves, takes;
  for (int i = 0; i < 63; ++i) {
    leaves.stash.push_back(absl::StrCat("skip", i));
  }
  takes.pop = leaves.stash;
  const LayerCompute none = [](const at::Tensor&, const at::Tensor& x, Skips&) {
    return x;
  };
  const LayerSpecs specs = {WithWeight("first", {1}, leaves, none),
                            WithWeight("second", {1}, takes, none)};
  const auto status =
      RunRankPipeline(specs, RankPipelineCase(),
                      [](PipelineExecutor&, int) { return absl::OkStatus(); });
  EXPECT_THAT(status,
              Says("64 tensors cross the cut before layer second, behind "
                   "stage 0, but between ranks 63 at most can"));
}

}  // namespace
}  // namespace tandem::boundary_tensors_test
