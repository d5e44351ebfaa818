#include "tests/parallel/strategy/graph_lab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/graph/capture.h"
#include "core/sim/streams/host_waits.h"
#include "tests/parallel/strategy/lab_models.h"

namespace tandem {

void ExpectNoHostWaitsInGraphs(const LabLayout& layout) {
  constexpr int kWatched = 9;
  const LabJob job = ModelJob("gpt_tiny", 0, 0, [](auto& options) {
    options.cuda_graphs = true;
    options.optimizer = AdamWOptions();
  });
  const absl::Status done =
      OnLabRanks(layout, job, [](const LabRank& rank) -> absl::Status {
        Strategy& strategy = *rank.strategy;
        TANDEM_RETURN_IF_ERROR(
            SubmitLabSteps(strategy, "gpt_tiny", 0, kStepsBeforeCapture));
        const sim::HostWaits before = sim::CountedHostWaits();
        TANDEM_RETURN_IF_ERROR(SubmitLabSteps(strategy, "gpt_tiny",
                                              kStepsBeforeCapture, kWatched));
        EXPECT_THAT(sim::HostWaitsSince(before), testing::IsEmpty());
        EXPECT_THAT(strategy.DescribeGraph(), testing::HasSubstr("captured"));
        TANDEM_ASSIGN_OR_RETURN(const auto scores, strategy.TakeScores());
        EXPECT_EQ(scores.size(),
                  static_cast<size_t>(kStepsBeforeCapture + kWatched));
        return absl::OkStatus();
      });
  EXPECT_TRUE(done.ok()) << done;
}

}  // namespace tandem
