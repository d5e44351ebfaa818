// Pipelines that make no sense are refused by name, before anything is trained.

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/pipeline_runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Refusal {
  std::string name;
  Flags flags;  // behind "--strategy=pipeline --devices_per_rank=2"
  std::vector<std::string> says;
  int exit_code = 2;
};

class PipelineRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(PipelineRefusalTest, SaysWhatIsWrong) {
  const Flags usual = {"--strategy=pipeline", "--devices_per_rank=2"};
  Program program(kTrain, SmallJob(Joined(usual, GetParam().flags)));
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.err;
  for (const std::string& text : GetParam().says) {
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  const bool alone = result.err.find("tandem:") == std::string::npos;
  if (alone) {
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
  EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(result.out, Not(HasSubstr("step 1")));
  EXPECT_TRUE(program.LivingProcesses().empty());
}

std::string ScheduleFile(const std::string& text) {
  const std::string path = NewFolder("schedule") + "/mine.txt";
  std::ofstream(path) << text;
  return path;
}

INSTANTIATE_TEST_SUITE_P(
    Layout, PipelineRefusalTest,
    testing::Values(
        Refusal{"OneDevice",
                {"--devices_per_rank=1"},
                {"--strategy=pipeline needs several devices"}},
        Refusal{
            "NotThatManyRanks",
            {"--pipe=2"},
            {"--pipe=2: the pipe degree 2 does not divide the world size 1"}},
        Refusal{"Replicas",
                {"--pipe=2", "--nproc_per_node=4"},
                {"--strategy=pipeline: the strategy pipeline runs one replica",
                 "data 2 x pipe 2", "use hybrid"}},
        Refusal{"PipeOfAnotherStrategy",
                {"--pipe=2", "--nproc_per_node=2", "--strategy=ddp"},
                {"--pipe=2 needs --strategy=pipeline", "--strategy=ddp"}},
        Refusal{"PipelinesFlagOfAnotherStrategy",
                {"--strategy=model_parallel", "--deferred_batch_norm"},
                {"--deferred_batch_norm=true is for pipelines"}},
        Refusal{
            "MoreStagesThanLayers",
            {"--model=mlp_dropout", "--devices_per_rank=4", "--schedule=zb_v"},
            {"8 parts need as many layers", "has 7"}},
        Refusal{"MoreStagesThanLayersOnRanks",
                {"--model=mlp_dropout", "--pipe=2", "--nproc_per_node=2",
                 "--schedule=zb_v"},
                {"8 parts need as many layers", "has 7"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Schedule, PipelineRefusalTest,
    testing::Values(
        Refusal{"Unknown", {"--schedule=1f2b"}, {"1f2b", "zb_h1"}},
        Refusal{"InterleavedMicrobatches",
                {"--schedule=interleaved_1f1b", "--microbatches=5"},
                {"--microbatches=5", "interleaved_1f1b", "looped_bfs"}},
        Refusal{"Chunks",
                {"--schedule=gpipe", "--chunks=2"},
                {"--chunks=2", "gpipe has 1"}},
        Refusal{"MoreMicrobatchesThanSamples",
                {"--microbatches=17"},
                {"--microbatches=17 is more", "--batch_size=16"}},
        Refusal{"MicrobatchesTwice",
                {"--microbatches=4", "--microbatch_size=4"},
                {"say the same thing twice"}},
        Refusal{"MissingFile", {"--schedule=/no/such/file"}, {"/no/such/file"}},
        Refusal{"FileThatDeadlocks",
                {"--schedule=" + ScheduleFile("B0 F0\nF0 B0\n")},
                {"mine.txt"}},
        Refusal{"FileThatForgets",
                {"--schedule=" + ScheduleFile("F0 F1 B0 B1\nF0 B0 F1\n")},
                {"mine.txt",
                 "stage 1 does microbatch 1's forward 1 times, backward 0"}},
        Refusal{"FileThatIsNoSchedule",
                {"--schedule=" + ScheduleFile("F0 X0\nF0 B0\n")},
                {"mine.txt", "X0"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Balance, PipelineRefusalTest,
    testing::Values(
        Refusal{"UnknownLayer", {"--balance=fc9"}, {"fc9", "fc8"}},
        Refusal{"CutsOfThreeStages", {"--balance=fc2,fc3"}, {"fc2,fc3"}},
        Refusal{"NoExpression",
                {"--balance=type:["},
                {"--balance: balance by type:["}},
        Refusal{"NoSuchType",
                {"--balance=type:Conv"},
                {"type:Conv matches 0 layers", "Linear"}},
        Refusal{"CutAndBalance",
                {"--cut=fc2", "--balance=uniform"},
                {"--cut=fc2", "--balance=uniform"}},
        Refusal{"NothingFits",
                {"--balance=profile", "--device=sim", "--device_memory=32KiB"},
                {"memory"},
                1}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Replicas, PipelineRefusalTest,
    testing::Values(
        Refusal{"Hook",
                {"--comm_hook=fp16"},
                {"--comm_hook=fp16", "averages nothing"}},
        Refusal{"Accumulation",
                {"--gradient_accumulation_steps=2"},
                {"--gradient_accumulation_steps=2", "--microbatches"}},
        Refusal{"Averaging",
                {"--average_parameters_every=4"},
                {"--average_parameters_every=4"}},
        Refusal{"Buckets", {"--bucket_cap_mb=5"}, {"--bucket_cap_mb=5"}},
        Refusal{"Unused",
                {"--find_unused_parameters"},
                {"--find_unused_parameters=true"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
