#include "tools/bench/pipeline/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/schedule/schedules.h"

namespace tandem::pipeline_cases_test {
namespace {

using testing::HasSubstr;

TEST(PipelineCases, AreEachModelUnderEachSchedule) {
  ASSERT_EQ(CasesNamed(PipelineCases(2), {})->size(), 18u);
  const auto one = CasesNamed(PipelineCases(2), {"gpt_tiny/zb_h1"});
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().workload.batch_size, 8);
  EXPECT_EQ(CasesNamed(PipelineCases(2), {"resnet18", "mlp_deep/1f1b"})->size(),
            7u);
  const absl::Status unknown =
      CasesNamed(PipelineCases(2), {"mlp_deep/pipedream"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("mlp_deep/1f1b"));
}

TEST(PipelineCases, LeaveOnlySettingsThatBothSidesCanRun) {
  for (const Case& each : PipelineCases(2)) {
    for (const Setting& setting : each.ours) {
      EXPECT_LE(setting.microbatches, each.workload.batch_size);
      EXPECT_TRUE(MakeSchedule(setting.schedule,
                               {2, setting.chunks, setting.microbatches})
                      .ok())
          << ToString(setting);
    }
    for (const Setting& setting : each.peers) {
      EXPECT_EQ(each.workload.batch_size % setting.microbatches, 0);
    }
  }
}

TEST(DoubtfulSettings, HaveTwoMicrobatchesAStage) {
  Workload workload;
  workload.batch_size = 8;
  for (const std::string& schedule : DoubtfulPeerSchedules()) {
    const std::vector<Setting> settings = DoubtfulSettings(schedule, workload);
    ASSERT_EQ(settings.size(), 4u);
    for (const Setting& each : settings) {
      EXPECT_EQ(each.schedule, schedule);
      EXPECT_GE(each.microbatches, 4);
    }
  }
}

}  // namespace
}  // namespace tandem::pipeline_cases_test
