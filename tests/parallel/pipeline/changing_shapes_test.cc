// Batches of other lengths from step to step, between ranks.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "parallel/schedule/schedules.h"
#include "tests/parallel/pipeline/rank_pipeline.h"

namespace tandem::changing_shapes_test {
namespace {

constexpr int64_t kWidth = 6;
constexpr int64_t kClasses = 5;
constexpr int64_t kRows = 2;  // of a microbatch

// Over sequences [samples, length, width], with a skip and a mask of the same
// length on their way.
LayerSpecs Specs() {
  LayerLinks leaves, takes;
  leaves.stash = {"early"};
  takes.pop = {"early"};
  takes.reads = {"mask"};
  LayerSpecs specs = {TanhLinear("fc1", kWidth, kWidth)};
  specs.push_back(WithWeight(
      "leaves", {kWidth, kWidth}, leaves,
      [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
        skips["early"] = x;
        return at::linear(x, weight).tanh();
      }));
  for (const char* name : {"fc2", "fc3", "fc4", "fc5"}) {
    specs.push_back(TanhLinear(name, kWidth, kWidth));
  }
  specs.push_back(WithWeight(
      "takes", {kWidth, kWidth}, takes,
      [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
        const at::Tensor early = skips.extract("early").mapped();
        return at::linear((x + early) * skips.at("mask"), weight);
      }));
  specs.push_back(
      WithWeight("last", {kClasses, kWidth}, {},
                 [](const at::Tensor& weight, const at::Tensor& x, Skips&) {
                   return at::linear(x.mean(1), weight);
                 }));
  return specs;
}

Batch BatchOf(int64_t length, int number, int64_t rows = kRows) {
  const at::Generator generator =
      GeneratorFor(1, absl::StrCat("batch ", number));
  Batch batch;
  batch.size = rows;
  batch.inputs = at::randn({rows, length, kWidth}, generator);
  batch.targets = at::arange(rows).add(number).remainder(kClasses);
  batch.further_inputs["mask"] =
      at::rand({rows, length, 1}, generator).gt(0.3).to(at::kFloat);
  return batch;
}

StepsStep StepOf(int64_t length, int microbatches, bool trains) {
  StepsStep step;
  step.trains = trains;
  for (int i = 0; i < microbatches; ++i) {
    step.microbatches.push_back(BatchOf(length, i));
  }
  return step;
}

// Trained at two lengths, evaluated at a third, and trained at the first; with
// as many samples a microbatch always.
std::vector<StepsStep> Steps() {
  return {StepOf(4, 4, true), StepOf(7, 4, true), StepOf(3, 4, false),
          StepOf(4, 4, true), StepOf(9, 3, true)};
}

TEST(ChangingShapesTest, LengthsMayChangeFromStepToStep) {
  const auto expected = StepsInOnePiece(Specs(), Steps());
  for (const std::string& name : ScheduleNames()) {
    for (const char* backend : {"shm", "gloo"}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", backend));
      RankPipelineCase each;
      each.schedule = name;
      each.backend = backend;
      ExpectSame(StepsInStages(Specs(), Steps(), each), expected,
                 /*same_bits=*/false);
    }
  }
}

TEST(ChangingShapesTest, OverFourRanksAndWithCheckpointing) {
  const auto expected = StepsInOnePiece(Specs(), Steps());
  for (const auto checkpointing :
       {ActivationCheckpointing::kNever, ActivationCheckpointing::kExceptLast,
        ActivationCheckpointing::kAlways}) {
    RankPipelineCase each;
    each.ranks = 4;
    each.checkpointing = checkpointing;
    ExpectSame(StepsInStages(Specs(), Steps(), each), expected,
               /*same_bits=*/true);
  }
}

// A form for each size of a microbatch, and nothing else beside the messages.
TEST(ChangingShapesTest, ShapesCostAMessageAStep) {
  RankPipelineCase each;
  StepsStep step = StepOf(4, 3, true);
  step.microbatches.push_back(BatchOf(4, 3, kRows - 1));
  const auto status = RunRankPipeline(
      Specs(), each, [&](PipelineExecutor& executor, int rank) -> absl::Status {
        for (int i = 0; i < 3; ++i) {
          const ChannelTraffic before = executor.sent();
          TANDEM_RETURN_IF_ERROR(
              executor.TrainStep(step.microbatches).status());
          // Values, skip and mask one way, gradients of two of them back.
          const int expected = rank == 0 ? 2 + 4 * 3 : 4 * 2;
          EXPECT_EQ(executor.sent().messages - before.messages, expected);
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ChangingShapesTest, WithinAStepTheyMayNot) {
  const std::vector<Batch> unlike = {BatchOf(4, 0), BatchOf(5, 1),
                                     BatchOf(4, 2), BatchOf(4, 3)};
  const auto outcome =
      StepsInStages(Specs(), {{unlike, true}}, RankPipelineCase());
  EXPECT_THAT(outcome.status(),
              Says("what crosses the cut behind stage 0 was Float [2, 4, 6]"));
  EXPECT_THAT(outcome.status(),
              Says("may depend on the number of samples alone"));
}

}  // namespace
}  // namespace tandem::changing_shapes_test
