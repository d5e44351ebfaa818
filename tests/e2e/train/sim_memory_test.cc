// A job on simulated devices says how much memory each held, ends when that is
// more than --device_memory, and refuses what makes no sense.

#include <algorithm>
#include <regex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Flags SimJob(const Flags& more = {}) {
  Flags flags = SmallJob({"--device=sim", "--max_steps=2"});
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// "469.2 KiB: ..." to 469.2.
double KiB(const std::string& peak) {
  std::smatch match;
  const bool matches =
      std::regex_search(peak, match, std::regex("^([0-9.]+) KiB: "));
  EXPECT_TRUE(matches) << peak;
  return matches ? std::stod(match[1]) : 0;
}

// In KiB: of one category.
double Part(const std::string& peak, const std::string& category) {
  std::smatch match;
  const bool matches = std::regex_search(
      peak, match, std::regex(category + " ([0-9.]+) (KiB|B)"));
  EXPECT_TRUE(matches) << category << " in " << peak;
  if (!matches) return 0;
  return std::stod(match[1]) / (match[2] == "B" ? 1024 : 1);
}

class PeakTest : public testing::TestWithParam<int> {};

TEST_P(PeakTest, IsToldForEachDeviceOfEachRank) {
  const int ranks = GetParam();
  ProgramResult program;
  const Events events =
      RunJobForEvents(SimJob({"--devices_per_rank=2", "--batch_size=12",
                              "--nproc_per_node=" + std::to_string(ranks)}),
                      &program);
  ASSERT_FALSE(events.empty());
  const nlohmann::json memory = events.back()["device_memory"];
  ASSERT_EQ(memory.size(), 2 * ranks);
  for (int device = 0; device < 2 * ranks; ++device) {
    const std::string name = "sim:" + std::to_string(device);
    ASSERT_TRUE(memory.contains(name)) << memory;
    const std::string peak = memory[name];
    EXPECT_THAT(program.out, HasSubstr(peak));
    EXPECT_THAT(program.out, HasSubstr("peak on " + name + " "));
    double parts = 0;
    for (const char* category : {"parameters", "gradients", "optimizer"}) {
      parts += Part(peak, category);
    }
    EXPECT_LE(parts, KiB(peak)) << peak;
    // mlp_small has 29,770 parameters of 4 bytes on its two devices.
    EXPECT_GE(Part(peak, "parameters"), 40) << peak;
    // Momentum is of the parameters' size.
    EXPECT_EQ(Part(peak, "optimizer"), Part(peak, "parameters")) << peak;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PeakTest, testing::Values(1, 2, 3));

TEST(SimMemoryTest, TheCpuHasNoPeaks) {
  ProgramResult program;
  const Events events = RunJobForEvents(SmallJob({"--max_steps=1"}), &program);
  EXPECT_TRUE(events.back()["device_memory"].empty());
  EXPECT_THAT(program.out, Not(HasSubstr("peak on")));
}

std::string Cap(double kib) {
  return "--device_memory=" + std::to_string(kib) + "KiB";
}

struct CapCase {
  std::string name;
  Flags flags;
  int ranks;
};

class CapTest : public testing::TestWithParam<CapCase> {};

// The cap is the peak less what its four digits leave open.
TEST_P(CapTest, UnderThePeakEndsTheJobAndAboveItDoesNot) {
  Flags job = SimJob(GetParam().flags);
  job.push_back("--nproc_per_node=" + std::to_string(GetParam().ranks));
  const Events free = RunJobForEvents(job);
  double peak = 0;
  for (const auto& each : free.back()["device_memory"]) {
    peak = std::max(peak, KiB(each));
  }
  Flags capped = job;
  capped.push_back(Cap(peak * 0.998));
  Program program(kTrain, capped);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_TRUE(program.LivingProcesses().empty());
  // In training: the weights alone would fit.
  EXPECT_TRUE(std::regex_search(
      result.err,
      std::regex("train: .*sim:[0-9]+ is out of memory: [0-9.]+ (KiB|B) asked "
                 "for, [0-9.]+ KiB of [0-9.]+ KiB in use \\(.*\\); largest "
                 "holders: [0-9.]+ KiB [a-z]+ of [a-z:_.A-Z]+ \\([0-9]+ "
                 "blocks?\\), ")))
      << result.err;
  for (const char* category : {"parameters", "gradients", "optimizer"}) {
    EXPECT_THAT(result.err, HasSubstr(category));
  }
  EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(result.err, Not(HasSubstr("Exception raised from")));

  Flags raised = job;
  raised.push_back(Cap(peak * 1.002));
  EXPECT_EQ(Fingerprint(RunJobForEvents(raised)), Fingerprint(free));
}

INSTANTIATE_TEST_SUITE_P(
    All, CapTest,
    testing::Values(CapCase{"OneDevice", {}, 1},
                    CapCase{"TwoDevices", {"--devices_per_rank=2"}, 1},
                    CapCase{"TwoRanks", {}, 2},
                    CapCase{"Hybrid", {"--devices_per_rank=2"}, 2}),
    [](const auto& info) { return info.param.name; });

// What does not fit on one device fits on two.
TEST(SimMemoryTest, MoreDevicesMakeRoom) {
  const Events two = RunJobForEvents(SimJob({"--devices_per_rank=2"}));
  const double most = KiB(two.back()["device_memory"]["sim:0"]);
  const std::string cap = Cap(most * 1.01);
  EXPECT_EQ(RunProgram(kTrain, SimJob({cap})).exit_code, 1);
  EXPECT_EQ(Fingerprint(RunJobForEvents(SimJob({cap, "--devices_per_rank=2"}))),
            Fingerprint(two));
}

// The message says which layer was on its way.
TEST(SimMemoryTest, APartThatDoesNotFitIsNamed) {
  const ProgramResult result =
      RunProgram(kTrain, SimJob({"--devices_per_rank=2", "--batch_size=12",
                                 "--cut=fc2", "--device_memory=40KiB"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("sim:1 is out of memory"),
                                HasSubstr("of 40 KiB in use"), HasSubstr("fc4"),
                                HasSubstr("stage 1, on sim:1")));
}

struct Refusal {
  std::string name;
  Flags flags;
  std::vector<std::string> says;
};

class SimRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(SimRefusalTest, SaysWhatIsWrong) {
  Program program(kTrain, SmallJob(GetParam().flags));
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  for (const std::string& text : GetParam().says) {
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(result.err, Not(HasSubstr("Exception raised from")));
  EXPECT_TRUE(program.LivingProcesses().empty());
}

const Flags kTwo = {"--device=sim", "--devices_per_rank=2"};

Flags OnTwo(const std::string& flag) { return {kTwo[0], kTwo[1], flag}; }

INSTANTIATE_TEST_SUITE_P(
    All, SimRefusalTest,
    testing::Values(
        Refusal{"UnknownLayer",
                OnTwo("--cut=fc9"),
                {"--cut", "no layer \"fc9\"", "did you mean fc", "flatten"}},
        Refusal{"CutBeyondTheEnd",
                OnTwo("--cut=16"),
                {"--cut", "\"16\"", "16 layers"}},
        Refusal{"TooManyCuts", OnTwo("--cut=fc2,fc3"), {"--cut=fc2,fc3", "2"}},
        Refusal{"CutsOutOfOrder",
                {"--device=sim", "--devices_per_rank=3", "--cut=fc3,fc2"},
                {"--cut", "fc2 (3) comes before", "order of the model"}},
        Refusal{"CutBeforeTheFirstLayer",
                OnTwo("--cut=flatten"),
                {"--cut", "flatten (0)", "no layer"}},
        Refusal{"CutOfOneDevice",
                {"--device=sim", "--cut=fc2"},
                {"--cut=fc2", "--devices_per_rank"}},
        Refusal{"MemoryOfTheCpu",
                {"--device_memory=1GiB"},
                {"--device_memory", "--device=sim", "cpu"}},
        Refusal{"MemoryThatIsNoSize",
                {"--device=sim", "--device_memory=lots"},
                {"--device_memory=lots", "80GiB"}},
        Refusal{"NoMemory",
                {"--device=sim", "--device_memory=0"},
                {"--device_memory=0", "80GiB"}},
        Refusal{"AsynchronousCpu",
                {"--sim_async"},
                {"--sim_async", "--device=sim", "cpu"}},
        Refusal{"DelayWithoutQueues",
                {"--device=sim", "--sim_delay_us=5"},
                {"--sim_delay_us", "--sim_async"}},
        Refusal{"NegativeDelay",
                {"--device=sim", "--sim_async", "--sim_delay_us=-1"},
                {"--sim_delay_us=-1"}},
        Refusal{"SingleOnTwoDevices",
                OnTwo("--strategy=single"),
                {"--strategy=single", "devices per rank 2"}},
        Refusal{"NoDevice",
                {"--device=sim", "--devices_per_rank=0"},
                {"--devices_per_rank=0"}},
        Refusal{"TooManyDevices",
                {"--device=sim", "--devices_per_rank=17"},
                {"needs 17 devices", "16 were found"}},
        Refusal{"TooManyDevicesOfRanks",
                {"--device=sim", "--devices_per_rank=6", "--nproc_per_node=3",
                 "--batch_size=15"},
                {"3 ranks need 18 devices, 6 each", "16 were found",
                 "fewer ranks"}},
        Refusal{"MorePartsThanLayers",
                {"--device=sim", "--devices_per_rank=8", "--model=toy",
                 "--synthetic_shape=10", "--synthetic_classes=5"},
                {"8"}}),
    [](const auto& info) { return info.param.name; });

TEST(SimMemoryTest, HelpListsTheFlags) {
  const ProgramResult result = RunProgram(kTrain, {"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* flag :
       {"--device ", "--devices_per_rank ", "--cut", "--device_memory",
        "--sim_async ", "--sim_delay_us ", "--sim_delay_seed "}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("\n  ") + flag));
  }
  EXPECT_THAT(result.out, HasSubstr("sim: simulated devices"));
}

}  // namespace
}  // namespace tandem
