// The strategy that a job reports is the one that runs, and the name that
// --strategy has for it.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

struct NamedLayout {
  const char* name;
  Flags flags;
  const char* strategy;  // that it is to report
};

class StrategyNameTest : public testing::TestWithParam<NamedLayout> {};

TEST_P(StrategyNameTest, GivenBackRunsTheSame) {
  const Flags job = SmallJob({"--max_steps=2"});
  Flags flags = job;
  flags.insert(flags.end(), GetParam().flags.begin(), GetParam().flags.end());
  const Events first = RunJobForEvents(flags);
  const std::string reported = first.front()["strategy"];
  EXPECT_EQ(reported, GetParam().strategy);
  flags.push_back("--strategy=" + reported);
  const Events again = RunJobForEvents(flags);
  EXPECT_EQ(again.front()["strategy"], reported);
  EXPECT_EQ(Fingerprint(again), Fingerprint(first));
}

INSTANTIATE_TEST_SUITE_P(
    All, StrategyNameTest,
    testing::Values(
        NamedLayout{"OneRank", {}, "single"},
        NamedLayout{"TwoRanks", {"--nproc_per_node=2"}, "ddp"},
        NamedLayout{"TwoDevices", {"--devices_per_rank=2"}, "model_parallel"},
        NamedLayout{"TwoReplicasInARank",
                    {"--devices_per_rank=2", "--strategy=data_parallel"},
                    "data_parallel"},
        NamedLayout{"TwoRanksOfTwoDevices",
                    {"--nproc_per_node=2", "--devices_per_rank=2"},
                    "ddp"},
        NamedLayout{"TwoRanksAlongAPipeline",
                    {"--nproc_per_node=2", "--pipe=2"},
                    "pipeline"},
        // Buckets are for the replicas, of which there are two.
        NamedLayout{"TwoPipelines",
                    {"--nproc_per_node=4", "--pipe=2", "--bucket_cap_mb=0.01"},
                    "hybrid"},
        NamedLayout{"ReplicasInMicrobatches",
                    {"--nproc_per_node=2", "--strategy=hybrid"},
                    "hybrid"},
        NamedLayout{
            "ReplicasOfDevicesInMicrobatches",
            {"--nproc_per_node=2", "--strategy=hybrid", "--devices_per_rank=2"},
            "hybrid"},
        NamedLayout{
            "Reproducible",
            {"--nproc_per_node=2", "--reproducible", "--microbatch_size=4"},
            "ddp"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
