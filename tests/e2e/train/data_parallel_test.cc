// --strategy=data_parallel: the devices of a rank share its batch, and the job
// is that of one device, but for the order of sums.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

std::vector<double> LossesOf(const Events& events) {
  std::vector<double> losses;
  for (const auto& each : EventsOf(events, "step")) {
    losses.push_back(each["loss"]);
  }
  return losses;
}

void ExpectClose(const Events& found, const Events& expected,
                 const std::string& what) {
  const std::vector<double> its = LossesOf(found), ours = LossesOf(expected);
  ASSERT_EQ(its.size(), ours.size()) << what;
  for (size_t i = 0; i < its.size(); ++i) {
    EXPECT_NEAR(its[i], ours[i], 1e-4 * std::abs(ours[i]))
        << what << ", step " << i + 1;
  }
}

struct Job {
  std::string name;
  Flags flags;
};

class DataParallelJobTest : public testing::TestWithParam<Job> {};

// On each rank.
TEST_P(DataParallelJobTest, TrainsAsOneDevice) {
  const Flags job = Joined(SmallJob(), GetParam().flags);
  const Events alone = RunJobForEvents(job);
  const Events two = RunJobForEvents(Joined(job, {"--nproc_per_node=2"}));
  for (const Flags& layout :
       {Flags{"--devices_per_rank=2"},
        Flags{"--devices_per_rank=3", "--device=sim"},
        Flags{"--devices_per_rank=2", "--device=sim", "--sim_async",
              "--sim_delay_us=50"},
        Flags{"--devices_per_rank=2", "--nproc_per_node=2", "--device=sim"}}) {
    std::string what;
    for (const std::string& each : layout) what += each + " ";
    const Events events = RunJobForEvents(
        Joined(Joined(job, layout), {"--strategy=data_parallel"}));
    EXPECT_EQ(events.front()["strategy"], "data_parallel") << what;
    const bool on_two =
        std::count(layout.begin(), layout.end(), "--nproc_per_node=2") > 0;
    ExpectClose(events, on_two ? two : alone, what);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DataParallelJobTest,
    testing::Values(Job{"Plain", {}},
                    Job{"AdamWithClippingAndAccumulation",
                        {"--optimizer=adamw", "--clip_grad_norm=0.5",
                         "--gradient_accumulation_steps=2"}},
                    Job{"DropoutBySample", {"--model=mlp_dropout"}},
                    Job{"TiedWeights",
                        {"--model=gpt_tiny_tied", "--dataset=synthetic_tokens",
                         "--synthetic_shape=8", "--synthetic_samples=24",
                         "--batch_size=8"}}),
    [](const auto& info) { return info.param.name; });

// The same bits each time, and when it has stopped in between; and a
// checkpoint of one layout goes on in the other.
TEST(DataParallelJobTest, GoesOnFromACheckpointOfEither) {
  const Flags job = SmallJob({"--epochs=2", "--device=sim"});
  const Flags layout = {"--strategy=data_parallel", "--devices_per_rank=2"};
  const Events straight = RunJobForEvents(Joined(job, layout));
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, layout))),
            Fingerprint(straight));
  const std::string folder = NewFolder("data_parallel");
  RunJobForEvents(
      Joined(Joined(job, layout), {"--save_dir=" + folder, "--save_every=4"}));
  const std::string resume = "--resume=" + folder + "/step-000000004";
  const Events again = RunJobForEvents(Joined(Joined(job, layout), {resume}));
  EXPECT_EQ(Fingerprint(again), Fingerprint(straight));
  const Events alone = RunJobForEvents(Joined(job, {resume}));
  ExpectClose(alone, again, "one device, from the other's checkpoint");
}

struct Refusal {
  std::string name;
  Flags flags;
  std::string says;
};

class DataParallelRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(DataParallelRefusalTest, NamesWhatDoesNotFit) {
  const ProgramResult result = RunProgram(
      kTrain, SmallJob(Joined({"--strategy=data_parallel"}, GetParam().flags)));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, DataParallelRefusalTest,
    testing::Values(Refusal{"OneDevice",
                            {},
                            "replicas on the several devices of each rank"},
                    Refusal{"Pipe",
                            {"--pipe=2", "--devices_per_rank=2"},
                            "--pipe=2 needs --strategy=pipeline or hybrid"},
                    Refusal{"Microbatches",
                            {"--microbatches=4", "--devices_per_rank=2"},
                            "--microbatches=4 is for pipelines"},
                    Refusal{"Reproducible",
                            {"--reproducible", "--microbatch_size=4",
                             "--devices_per_rank=2"},
                            "--reproducible excludes --strategy=data_parallel"},
                    Refusal{"Balance",
                            {"--balance=uniform", "--devices_per_rank=2"},
                            "each device has all of it"},
                    Refusal{"Cut",
                            {"--cut=fc2", "--devices_per_rank=2"},
                            "each device has all of it"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
