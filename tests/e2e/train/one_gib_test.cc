// A GPT of 70.9 million parameters on devices of 1 GiB: its state alone, of 16
// bytes a parameter, is more than one device has. Four devices have room for
// it by a pipeline, ZeRO 3, tensor parallelism, and recomputation, for which
// they share the optimizer's state, and by pairs of these. docs/rehearsal.md
// has the table.

#include <cstdio>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

struct Way {
  std::string name;
  std::string flags;
  bool fits = true;
};

Flags JobOf(const Way& way) {
  return Words(
      "--model=gpt_baby --layers=40 --width=384 --heads=8 --context=256 "
      "--dataset=synthetic_tokens --synthetic_samples=16 --batch_size=8 "
      "--optimizer=adamw --device=sim --device_memory=1GiB --save_dir= "
      "--max_steps=2 " +
      way.flags);
}

std::vector<Way> Ways() {
  const std::string four = "--nproc_per_node=4 ";
  const std::string again = " --checkpoint_every=1";
  const std::string pipe = four + "--pipe=4 --microbatch_size=1";
  const std::string zero3 = four + "--shard=parameters";
  const std::string tensor = four + "--tensor=4";
  return {
      {"OneDevice", "", false},
      {"OneDeviceOfOneSample", "--batch_size=1", false},
      {"FourReplicas", four + "--shard=off", false},
      {"FourReplicasThatComputeAgain", four + "--shard=off" + again, false},
      {"FourReplicasWithOneOptimizer", four + "--shard=optimizer", false},
      {"ComputedAgainWithOneOptimizer", four + "--shard=optimizer" + again},
      {"Pipeline", pipe},
      {"Zero3", zero3},
      {"Tensor", tensor},
      {"PipelineAndZero3", zero3 + " --pipe=2 --microbatch_size=1"},
      {"PipelineAndTensor", four + "--pipe=2 --tensor=2 --microbatch_size=1"},
      {"PipelineComputedAgain", pipe + again},
      {"Zero3AndTensor", zero3 + " --tensor=2"},
      {"Zero3ComputedAgain", zero3 + again},
      {"TensorComputedAgain", tensor + again},
  };
}

class OneGibTest : public testing::TestWithParam<Way> {};

// Without values: which layouts fit.
TEST_P(OneGibTest, IsRehearsed) {
  const ProgramResult told =
      RunProgram(kTrain, Joined(JobOf(GetParam()), {"--fake_weights"}));
  std::printf("%s", told.out.substr(told.out.rfind("fullest")).c_str());
  EXPECT_EQ(told.exit_code, GetParam().fits ? 0 : 1) << told.out << told.err;
}

// With them: what fits trains, and what does not is out of memory.
TEST_P(OneGibTest, Trains) {
  ProgramResult run = RunProgram(kTrain, JobOf(GetParam()));
  EXPECT_EQ(run.exit_code, GetParam().fits ? 0 : 1) << run.out << run.err;
  if (GetParam().fits) {
    EXPECT_THAT(run.out, HasSubstr("peak on sim:0"));
  } else {
    EXPECT_THAT(run.err, HasSubstr("is out of memory: "));
  }
}

INSTANTIATE_TEST_SUITE_P(All, OneGibTest, testing::ValuesIn(Ways()),
                         RowName<Way>);

}  // namespace
}  // namespace tandem
