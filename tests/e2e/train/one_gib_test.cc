// GPTs on devices of 1 GiB. Of 70.9 million parameters the state alone, of 16
// bytes each, is more than one device has: it trains on four by a pipeline,
// ZeRO 3 and tensor parallelism, by pairs of these, and by each of them with
// recomputation. The state of 42.8 million fits, but not with the activations
// of 8 samples: recomputation alone is enough. docs/rehearsal.md has the
// tables.

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
  int layers = 40;
};

Flags JobOf(const Way& way) {
  return Words(
      "--model=gpt_baby --width=384 --heads=8 --context=256 "
      "--dataset=synthetic_tokens --synthetic_samples=16 --batch_size=8 "
      "--optimizer=adamw --device=sim --device_memory=1GiB --save_dir= "
      "--max_steps=2 --layers=" +
      std::to_string(way.layers) + " " + way.flags);
}

std::vector<Way> Ways() {
  const std::string four = "--nproc_per_node=4 ";
  const std::string again = " --checkpoint_every=1";
  const std::string pipe = four + "--pipe=4 --microbatch_size=1";
  const std::string zero3 = four + "--shard=parameters";
  const std::string tensor = four + "--tensor=4";
  const std::string large_batch =
      four + "--shard=off --batch_size=32 --synthetic_samples=32 --max_steps=1";
  constexpr int kFewer = 24;  // layers
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
      {"OneDeviceOfFewerLayers", "", false, kFewer},
      {"OneDeviceComputesAgain", again, true, kFewer},
      {"FourReplicasOfFewerLayers", large_batch, false, kFewer},
      {"FourReplicasComputeAgain", large_batch + again, true, kFewer},
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
