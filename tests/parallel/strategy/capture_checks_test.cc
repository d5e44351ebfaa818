// Reasons why a step is not captured, one for each thing that forbids it.

#include "parallel/strategy/capture_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "parallel/schedule/schedules.h"
#include "parallel/schedule/sequential.h"

namespace tandem::capture_checks_test {
namespace {

using ::testing::HasSubstr;

struct Input {
  MeshStrategyOptions options;
  CaptureFacts facts;
};

struct Case {
  std::function<void(Input&)> change;
  const char* why;
  bool of_replicas = false;  // alone it does not matter
};

Input Plain(int replicas) {
  Input input;
  input.options.schedule = *SequentialSchedule(1, 2);
  input.facts.replicas = replicas;
  return input;
}

std::vector<Case> Cases() {
  return {
      {[](auto& i) {
         i.facts.has_graphs = absl::FailedPreconditionError("it has none");
       },
       "it has none"},
      {[](auto& i) { i.options.clip_norm = 1; }, "the host reads the norm"},
      {[](auto& i) { i.options.reproducible = true; }, "reproducible"},
      {[](auto& i) { i.facts.records_statistics = true; },
       "statistics of normalisation"},
      {[](auto& i) { i.facts.loss_has_weight = true; },
       "the loss has a weight"},
      {[](auto& i) { i.facts.exchanges_on_streams = false; },
       "through the host's memory", true},
      {[](auto& i) {
         i.options.make_hook = [] { return CommunicationHook(); };
       },
       "a communication hook", true},
      {[](auto& i) { i.options.averaging.emplace(); }, "train apart", true},
      {[](auto& i) { i.facts.shares_optimizer = true; },
       "share the optimizer's work", true},
      {[](auto& i) { i.options.ddp.find_unused_parameters = true; },
       "find_unused_parameters", true},
      {[](auto& i) { i.options.sync_batch_norm = true; }, "sync_batch_norm",
       true},
  };
}

TEST(CaptureChecksTest, EachHasItsReason) {
  for (const Case& each : Cases()) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(each.why);
      Input input = Plain(replicas);
      each.change(input);
      const std::string why = WhyNotCaptured(input.options, input.facts);
      if (each.of_replicas && replicas == 1) {
        EXPECT_EQ(why, "");
      } else {
        EXPECT_THAT(why, HasSubstr(each.why));
      }
    }
  }
}

Input PlainPipeline(int replicas) {
  Input input;
  input.options.schedule = *MakeSchedule("1f1b", {2, 1, 3});
  input.facts.replicas = replicas;
  return input;
}

std::vector<Case> CasesOfPipelines() {
  return {
      {[](auto& i) {
         i.facts.has_graphs = absl::FailedPreconditionError("it has none");
       },
       "it has none"},
      {[](auto& i) {
         i.options.schedule = *MakeSchedule("1f1b", {2, 1, 2});
       },
       "a step has 2 microbatches"},
      {[](auto& i) { i.options.schedule = *SequentialSchedule(2, 1); },
       "a step has 1 microbatch,"},
      {[](auto& i) {
         i.options.pipeline.checkpointing =
             ActivationCheckpointing::kExceptLast;
       },
       "activation checkpointing"},
      {[](auto& i) { i.options.pipeline.selective.every = 1; },
       "activation checkpointing"},
      {[](auto& i) { i.options.pipeline.defers_statistics = true; },
       "are gathered microbatch by microbatch"},
      {[](auto& i) { i.options.weight_gradient_batch = 2; },
       "weight_gradient_batch"},
      {[](auto& i) { i.options.reproducible = true; }, "reproducible"},
      {[](auto& i) { i.facts.records_statistics = true; },
       "statistics of normalisation"},
      {[](auto& i) { i.facts.loss_has_weight = true; },
       "the loss has a weight"},
      {[](auto& i) { i.options.ddp.find_unused_parameters = true; },
       "find_unused_parameters", true},
      {[](auto& i) { i.options.sync_batch_norm = true; }, "sync_batch_norm",
       true},
  };
}

TEST(CaptureChecksTest, EachHasItsReasonInPipelines) {
  for (const Case& each : CasesOfPipelines()) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(each.why);
      Input input = PlainPipeline(replicas);
      each.change(input);
      const std::string why =
          WhyMicrobatchesAreNotCaptured(input.options, input.facts);
      if (each.of_replicas && replicas == 1) {
        EXPECT_EQ(why, "");
      } else {
        EXPECT_THAT(why, HasSubstr(each.why));
      }
    }
  }
}

// What is done between steps stays out of the graphs.
TEST(CaptureChecksTest, PlainMicrobatchesAreCaptured) {
  for (const int replicas : {1, 2}) {
    Input input = PlainPipeline(replicas);
    EXPECT_EQ(WhyMicrobatchesAreNotCaptured(input.options, input.facts), "");
    input.options.clip_norm = 1;
    input.options.averaging.emplace();
    input.options.grad_scaler.emplace();
    input.options.ddp.mixed_precision.param_dtype = at::kHalf;
    input.facts.exchanges_on_streams = false;
    input.facts.shares_optimizer = true;
    EXPECT_EQ(WhyMicrobatchesAreNotCaptured(input.options, input.facts), "");
  }
}

TEST(CaptureChecksTest, PlainStepsAreCaptured) {
  for (const int replicas : {1, 2}) {
    Input input = Plain(replicas);
    EXPECT_EQ(WhyNotCaptured(input.options, input.facts), "");
    input.options.clip_norm = 1;
    input.facts.clips_on_device = true;
    EXPECT_EQ(WhyNotCaptured(input.options, input.facts), "");
  }
}

}  // namespace
}  // namespace tandem::capture_checks_test
