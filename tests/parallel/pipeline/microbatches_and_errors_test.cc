// Microbatches of a batch, and what an executor says of failures.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/instrument/fault_point.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/schedule/schedules.h"
#include "tests/parallel/pipeline/rank_pipeline.h"

namespace tandem::microbatches_and_errors_test {
namespace {

using Sizes = std::vector<int64_t>;

at::Tensor Rows(int64_t rows, int64_t width) {
  return at::arange(rows * width).view({rows, width});
}

TEST(MicrobatchesTest, EvenSizesDifferByOne) {
  EXPECT_EQ(EvenSizes(13, 4), Sizes({4, 3, 3, 3}));
  EXPECT_EQ(EvenSizes(12, 4), Sizes({3, 3, 3, 3}));
  EXPECT_EQ(EvenSizes(2, 4), Sizes({1, 1}));
  EXPECT_EQ(EvenSizes(0, 4), Sizes());
  EXPECT_EQ(EvenSizes(7, 1), Sizes({7}));
}

TEST(MicrobatchesTest, FixedSizesLeaveTheRestToTheLast) {
  EXPECT_EQ(FixedSizes(13, 4), Sizes({4, 4, 4, 1}));
  EXPECT_EQ(FixedSizes(12, 4), Sizes({4, 4, 4}));
  EXPECT_EQ(FixedSizes(3, 4), Sizes({3}));
  EXPECT_EQ(FixedSizes(0, 4), Sizes());
}

TEST(MicrobatchesTest, ABatchIsCutIntoViews) {
  const Batch batch = {Rows(5, 2), at::arange(5), 5};
  const auto parts = SplitBatch(batch, {2, 2, 1});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[2].size, 1);
  const Batch& middle = (*parts)[1];
  EXPECT_TRUE(middle.inputs.equal(batch.inputs.narrow(0, 2, 2)));
  EXPECT_TRUE(middle.targets.equal(batch.targets.narrow(0, 2, 2)));
  EXPECT_TRUE(middle.inputs.is_alias_of(batch.inputs));
  EXPECT_TRUE(middle.further_inputs.empty());
}

TEST(MicrobatchesTest, ABatchWithoutTensorsKeepsItsSizes) {
  Batch batch;
  batch.size = 5;
  batch.further_inputs["mask"] = at::Tensor();
  const auto parts = SplitBatch(batch, {3, 2});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  const Batch& last = (*parts)[1];
  EXPECT_EQ(last.size, 2);
  EXPECT_FALSE(last.inputs.defined());
  EXPECT_FALSE(last.further_inputs.at("mask").toTensor().defined());
}

// "mask": [5, 1]; "views": ({"left": [5, 2]}, [[5, 2], [5, 3]])
Batch WithFurtherInputs() {
  Batch batch = {Rows(5, 2), at::arange(5), 5};
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  dict.insert("left", Rows(5, 2));
  const c10::List<at::Tensor> list({Rows(5, 2), Rows(5, 3)});
  batch.further_inputs["mask"] = Rows(5, 1);
  batch.further_inputs["views"] = c10::ivalue::Tuple::create({dict, list});
  return batch;
}

TEST(MicrobatchesTest, TuplesListsAndDictsAreCut) {
  const auto parts = SplitBatch(WithFurtherInputs(), {1, 3, 1});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3u);
  int64_t first = 0;
  for (const Batch& part : *parts) {
    const auto rows = [&](int64_t width) {
      return Rows(5, width).narrow(0, first, part.size);
    };
    EXPECT_TRUE(part.further_inputs.at("mask").toTensor().equal(rows(1)));
    const auto& views = part.further_inputs.at("views").toTupleRef().elements();
    EXPECT_TRUE(views[0].toGenericDict().at("left").toTensor().equal(rows(2)));
    EXPECT_TRUE(views[1].toTensorVector()[0].equal(rows(2)));
    EXPECT_TRUE(views[1].toTensorVector()[1].equal(rows(3)));
    first += part.size;
  }
  EXPECT_EQ(first, 5);
}

TEST(MicrobatchesTest, FurtherTargetsAreCutLikeFurtherInputs) {
  Batch batch = {Rows(5, 2), at::arange(5), 5};
  batch.further_targets["boxes"] =
      c10::ivalue::Tuple::create({Rows(5, 2), Rows(5, 3)});
  const auto parts = SplitBatch(batch, {2, 3});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto& boxes =
      parts->back().further_targets.at("boxes").toTupleRef().elements();
  EXPECT_TRUE(boxes[1].toTensor().equal(Rows(5, 3).narrow(0, 2, 3)));
  batch.further_targets["kinds"] = at::arange(4);
  EXPECT_EQ(SplitBatch(batch, {2, 3}).status().message(),
            "a batch of 5 samples has Long [4] as 'kinds', whose dimension 0 "
            "does not count them");
}

TEST(MicrobatchesTest, SaysWhichTensorDoesNotFit) {
  const auto said = [](const Batch& batch) {
    const absl::Status status = SplitBatch(batch, {2, 3}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  Batch batch = WithFurtherInputs();
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  dict.insert("left", Rows(4, 2));
  batch.further_inputs["views"] = c10::ivalue::Tuple::create({dict, dict});
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [4, 2] as 'views[0]['left']', whose "
            "dimension 0 does not count them");
  batch = WithFurtherInputs();
  batch.further_inputs["mask"] = at::arange(5).sum();
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [] as 'mask', whose dimension 0 "
            "does not count them");
  batch = WithFurtherInputs();
  batch.inputs = Rows(6, 1);
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [6, 1] as 'inputs', whose dimension "
            "0 does not count them");
  batch = WithFurtherInputs();
  batch.targets = at::arange(4);
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [4] as 'targets', whose dimension 0 "
            "does not count them");
}

// Failures, hangs and mistakes in a pipeline are said where they are.

class PipelineExecutorErrorsTest : public ExecutorFixture {
 protected:
  // The model with another forward of its last layer.
  static LayerSpecs WithLastLayer(
      const std::function<at::Tensor(const Layer&, const at::Tensor&)>&
          forward) {
    LayerSpecs specs = Specs();
    specs.back().make = [make = specs.back().make, forward](uint64_t seed) {
      const Layer layer = make(seed);
      Layer changed = layer;
      changed.forward = [layer, forward](const at::Tensor& x) {
        return forward(layer, x);
      };
      return changed;
    };
    return specs;
  }

  static void HangInALayer(const Schedule& schedule);
};

void PipelineExecutorErrorsTest::HangInALayer(const Schedule& schedule) {
  absl::Notification hang, end;
  int calls = 0;
  const LayerSpecs specs =
      WithLastLayer([&](const Layer& layer, const at::Tensor& x) {
        if (++calls == 2) {
          hang.Notify();
          end.WaitForNotification();
        }
        return layer.forward(x);
      });
  PipelineOptions options;
  // What does not hang takes milliseconds, on a busy machine some hundreds.
  options.hang_timeout = std::chrono::seconds(1);
  std::string said;
  options.on_hang = [&](const std::string& message) {
    EXPECT_TRUE(hang.HasBeenNotified());
    said = message;
    if (!end.HasBeenNotified()) end.Notify();
  };
  const auto executor = Make(schedule, specs, options);
  ASSERT_TRUE(executor.ok()) << executor.status();
  const absl::Status failed =
      (*executor)->TrainStep(BatchesOf(8, 4, 1)).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(std::string(failed.message()), said);
  const PipelineStage& last = *(*executor)->stages().back();
  EXPECT_THAT(said, testing::StartsWith(absl::StrCat(
                        "forward of microbatch 1 in ", last.name(),
                        " has been computing for 1s, in layer ",
                        last.layers().back().name, ": it cannot be stopped")));
}

TEST_P(PipelineExecutorErrorsTest, AFailureStopsAllStagesAndSaysWhere) {
  const auto schedule = MakeSchedule("1f1b", {3, 1, 4});
  int calls = 0;
  const LayerSpecs specs =
      WithLastLayer([&calls](const Layer& layer, const at::Tensor& x) {
        TORCH_CHECK(++calls != 3, "the third call fails");
        return layer.forward(x);
      });
  const auto executor = Make(*schedule, specs);
  ASSERT_TRUE(executor.ok()) << executor.status();
  const PipelineStage& last = *(*executor)->stages().back();
  const absl::Status failed =
      (*executor)->TrainStep(BatchesOf(8, 4, 1)).status();
  EXPECT_EQ(std::string(failed.message()),
            absl::StrCat("forward of microbatch 2 in ", last.name(), ": layer ",
                         last.layers().back().name, ": the third call fails"));
  EXPECT_THAT(last.name(), testing::StartsWith("stage 2, on "));
  // And it can go on.
  EXPECT_TRUE((*executor)->TrainStep(BatchesOf(8, 4, 1)).ok());
}

// In a thread of the device's own, and in the caller's.
TEST_P(PipelineExecutorErrorsTest, AHangInALayerIsSaid) {
  for (const int devices : {2, 1}) {
    SCOPED_TRACE(devices);
    HangInALayer(*MakeSchedule("1f1b", {devices, 1, 4}));
  }
}

TEST_P(PipelineExecutorErrorsTest, ANeighbourThatDoesNotComeEndsTheWait) {
  const auto schedule = MakeSchedule("1f1b", {2, 1, 4});
  PipelineOptions options;
  // Stage 1 waits for its first activation as long, which is to come.
  options.timeout = std::chrono::seconds(1);
  absl::Notification given_up;
  const LayerSpecs specs =
      WithLastLayer([&](const Layer& layer, const at::Tensor& x) {
        given_up.WaitForNotificationWithTimeout(absl::Seconds(20));
        return layer.forward(x);
      });
  // Stage 0, which waits from about then on, has given up before.
  options.hang_timeout = std::chrono::milliseconds(2500);
  options.on_hang = [&](const std::string&) {
    if (!given_up.HasBeenNotified()) given_up.Notify();
  };
  const auto executor = Make(*schedule, specs, options);
  ASSERT_TRUE(executor.ok()) << executor.status();
  const absl::Status failed =
      (*executor)->TrainStep(BatchesOf(8, 4, 1)).status();
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               "in stage 0, on ", "microbatch", "within 1s"));
}

TEST_P(PipelineExecutorErrorsTest, AFaultPointOfEachStageAndDirection) {
  for (const char* point : {"stage:0:forward:2", "stage:1:backward:0"}) {
    ArmFaults(*ParseFaults(absl::StrCat("point=", point, ",action=fail")));
    const auto executor = Make(*MakeSchedule("1f1b", {2, 1, 4}), Specs());
    ASSERT_TRUE(executor.ok()) << executor.status();
    const absl::Status failed =
        (*executor)->TrainStep(BatchesOf(8, 4, 1)).status();
    ArmFaults({});
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, point));
  }
}

TEST_P(PipelineExecutorErrorsTest, RefusesWhatDoesNotFit) {
  const auto schedule = MakeSchedule("1f1b", {2, 1, 4});
  const auto executor = Make(*schedule, Specs());
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_THAT((*executor)->TrainStep(BatchesOf(8, 5, 1)).status(),
              Says("takes 0 to 4 microbatches, none empty; 5 were given"));
  EXPECT_THAT((*executor)->Infer(BatchesOf(8, 5, 1), false).status(),
              Says("takes 1 to 4 microbatches, none empty; 5 were given"));
  EXPECT_THAT(PipelineExecutor::Create(*schedule, {}, {Devices(2)}).status(),
              Says("has 2 stages, but 0 were given"));
}

// Throws where a Status is expected.
class ThrowingGradients : public StageGradients {
 public:
  absl::Status Prepare() override { return absl::OkStatus(); }
  absl::Status Before(const Action& /*action*/, bool /*last*/) override {
    throw std::runtime_error("a hook threw");
  }
  absl::Status After(const Action& /*action*/, bool /*last*/) override {
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }
};

// The other device waits for its gradients no longer than that.
TEST_P(PipelineExecutorErrorsTest, AnExceptionEndsTheWaitOfOthersToo) {
  const auto executor = Make(*MakeSchedule("1f1b", {2, 1, 4}), Specs());
  ASSERT_TRUE(executor.ok()) << executor.status();
  ThrowingGradients throwing;
  StepGradients gradients;
  gradients.of_stages = {nullptr, &throwing};
  const absl::Status failed =
      (*executor)->TrainStep(BatchesOf(8, 4, 1), {}, gradients).status();
  EXPECT_THAT(failed,
              Says("backward of microbatch 0 in stage 1", "a hook threw"));
}

TANDEM_ON_DEVICE_TYPES(PipelineExecutorErrorsTest);

}  // namespace
}  // namespace tandem::microbatches_and_errors_test
