// That the loop is closed. How well it predicts is a matter of a quiet machine,
// and the program's to say.

#include "tools/bench/pipeline/closed_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace tandem {
namespace {

using testing::HasSubstr;

ClosedLoopOptions Options() {
  ClosedLoopOptions options;
  options.workload.model = "mlp_small";
  options.workload.input_shape = {2, 3};
  options.workload.classes = 3;
  options.workload.batch_size = 7;
  options.microbatches = 3;
  options.rounds = 2;
  options.steps = 1;
  return options;
}

void ExpectTimes(const absl::StatusOr<ClosedLoopResult>& result, size_t rounds,
                 size_t cuts) {
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->cuts.size(), cuts);
  int64_t last = 0;
  for (const int64_t cut : result->cuts) {
    EXPECT_GT(cut, last);
    last = cut;
  }
  ASSERT_EQ(result->rounds.size(), rounds);
  for (const ClosedLoopRound& round : result->rounds) {
    EXPECT_GT(round.optimizer, 0);
    EXPECT_GT(round.measured, 0);
    // A step is its actions and the optimizer behind them.
    EXPECT_GT(round.by_layers, round.optimizer);
    EXPECT_GT(round.by_stages, round.optimizer);
    EXPECT_TRUE(std::isfinite(round.by_layers));
    EXPECT_TRUE(std::isfinite(round.by_stages));
  }
}

TEST(ClosedLoopTest, EveryRoundPredictsAndMeasures) {
  ExpectTimes(RunClosedLoop(Options()), 2, 1);
}

TEST(ClosedLoopTest, OneDeviceHasNoCut) {
  ClosedLoopOptions options = Options();
  options.cores = {-1};
  options.schedule = "gpipe";
  options.microbatches = 1;
  options.rounds = 1;
  ExpectTimes(RunClosedLoop(options), 1, 0);
}

TEST(ClosedLoopTest, ADeviceMayHaveSeveralStages) {
  ClosedLoopOptions options = Options();
  options.schedule = "interleaved_1f1b";
  options.chunks = 2;
  options.microbatches = 4;
  options.rounds = 1;
  ExpectTimes(RunClosedLoop(options), 1, 3);
}

TEST(ClosedLoopTest, TokensAreDrawnForModelsThatTakeThem) {
  ClosedLoopOptions options = Options();
  options.workload.model = "gpt_tiny";
  options.workload.input_shape = {5};
  options.workload.classes = 11;
  options.workload.tokens = true;
  options.schedule = "zb_h1";
  options.weight_gradient_batch = 2;
  options.rounds = 1;
  ExpectTimes(RunClosedLoop(options), 1, 1);
}

TEST(ClosedLoopTest, WhatDoesNotFitIsRefused) {
  const auto said = [](const ClosedLoopOptions& options) {
    return std::string(RunClosedLoop(options).status().message());
  };
  ClosedLoopOptions options = Options();
  options.workload.model = "mlp_huge";
  EXPECT_THAT(said(options), HasSubstr("mlp_huge"));
  options = Options();
  options.schedule = "pipedream";
  EXPECT_THAT(said(options), HasSubstr("pipedream"));
  options = Options();
  options.workload.batch_size = 2;
  EXPECT_THAT(said(options), HasSubstr("a batch of 2 samples"));
  options = Options();
  options.cores = std::vector<int>(17, -1);
  EXPECT_FALSE(RunClosedLoop(options).ok());
}

}  // namespace
}  // namespace tandem
