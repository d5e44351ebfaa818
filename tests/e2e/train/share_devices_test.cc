// Ranks, and devices of a rank, that share one simulated device: as on one GPU.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct SharedCase {
  std::string name;
  Flags flags;
};

class ShareDevicesTest : public testing::TestWithParam<SharedCase> {};

TEST_P(ShareDevicesTest, EndsWithTheBitsOfADeviceForEach) {
  Flags job = SmallJob({"--device=sim"});
  job.insert(job.end(), GetParam().flags.begin(), GetParam().flags.end());
  const std::string apart = Fingerprint(RunJobForEvents(job));
  EXPECT_EQ(apart.size(), 64);
  job.push_back("--share_devices");
  const Events events = RunJobForEvents(job);
  EXPECT_EQ(Fingerprint(events), apart);
  const nlohmann::json summary = EventsOf(events, "summary").back();
  EXPECT_THAT(summary.dump(), HasSubstr("sim:0"));
  EXPECT_THAT(summary.dump(), Not(HasSubstr("sim:1")));
}

INSTANTIATE_TEST_SUITE_P(
    All, ShareDevicesTest,
    testing::Values(
        SharedCase{"Replicas", {"--nproc_per_node=2"}},
        SharedCase{"ModelParallel", {"--devices_per_rank=2"}},
        SharedCase{"Pipeline", {"--devices_per_rank=2", "--strategy=pipeline"}},
        SharedCase{"PipelineOnStreams",
                   {"--devices_per_rank=2", "--strategy=pipeline",
                    "--sim_async", "--sim_delay_us=50"}},
        SharedCase{"PipelineOfRanks",
                   {"--nproc_per_node=2", "--pipe=2", "--strategy=pipeline"}},
        SharedCase{"DataParallel",
                   {"--devices_per_rank=2", "--strategy=data_parallel"}}),
    [](const auto& info) { return info.param.name; });

TEST(ShareDevicesRefusalTest, NcclTakesOneRankADevice) {
  const ProgramResult result = RunProgram(
      kTrain,
      SmallJob({"--device=sim", "--share_devices", "--backend=sim_nccl"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--share_devices"));
  EXPECT_THAT(result.err, HasSubstr("--backend=sim_nccl needs a device"));
}

TEST(ShareDevicesRefusalTest, TheCpuIsSharedAnyway) {
  const ProgramResult result =
      RunProgram(kTrain, SmallJob({"--share_devices"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--share_devices is for GPUs"));
}

}  // namespace
}  // namespace tandem
