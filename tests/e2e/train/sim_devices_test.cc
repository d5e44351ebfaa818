// train --device=sim, from end to end: with --backend=sim_nccl layouts train as
// over the host's memory, and jobs are stopped, resumed, or lose a rank; a job
// says how much memory each device held, and ends when that is more than
// --device_memory.

#include <signal.h>

#include <algorithm>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::sim_devices_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOnNccl[] = "--device=sim --backend=sim_nccl --sim_delay_us=20 ";

struct Layout {
  std::string name;
  std::string flags;
};

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"ddp", "--nproc_per_node=2"},
      {"pipeline", "--nproc_per_node=2 --pipe=2 --microbatch_size=2"},
      {"devices", "--devices_per_rank=2 --nproc_per_node=2"},
      {"hybrid", "--nproc_per_node=4 --pipe=2 --microbatch_size=2"}};
  return *layouts;
}

// Sums of two replicas have no order: the same numbers as on the CPU.
std::vector<SameRow> TechniqueRows() {
  std::vector<SameRow> rows = {
      {"clipped", Tiny("gpt_tiny_tied"), {"--clip_grad_norm=0.1"}},
      {"fp16", Tiny("mlp_small"), {"--dtype=fp16 --optimizer=adamw"}},
      {"sharded", Tiny("mlp_dropout"), {"--shard=optimizer --optimizer=adam"}},
      {"reproducible",
       Tiny("mlp_small"),
       {"--reproducible --microbatch_size=2 --optimizer=adamw"}}};
  for (SameRow& row : rows) {
    const std::string technique = std::exchange(row.others[0], kOnNccl);
    row.places.clear();
    for (const Layout& layout : Layouts()) {
      // A pipeline is one replica, which shares its optimizer with none.
      if (row.name == "sharded" && layout.name == "pipeline") continue;
      row.places.push_back(layout.flags + " " + technique);
    }
    row.comparison =
        Both(HasSteps(kTinySteps), Both(SameLosses(1e-6), SameBits));
  }
  return rows;
}

class SimNcclTest : public testing::TestWithParam<SameRow> {};

TEST_P(SimNcclTest, LayoutsTrainAsOverTheHostsMemory) {
  ExpectSame(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, SimNcclTest, testing::ValuesIn(TechniqueRows()),
                         RowName<SameRow>);

TEST(SimNcclTableTest, NoCellIsMissing) {
  EXPECT_EQ(CellsIn(TechniqueRows()), 15);
}

// Some seconds; the tenth step comes soon.
Flags StoppedJob(const Layout& layout, const std::string& more = "") {
  return Small("--epochs=20 --batch_size=12 --reproducible " + layout.flags +
               " --microbatch_size=3 " + kOnNccl + more);
}

class StoppedOnSimNcclTest : public testing::TestWithParam<Layout> {};

TEST_P(StoppedOnSimNcclTest, CtrlCAndResumeEndWithTheSameBits) {
  const std::string folder = NewFolder("stop");
  const Events straight = RunJobForEvents(StoppedJob(GetParam()));
  Program program(kTrain, StoppedJob(GetParam(), "--save_dir=" + folder));
  ASSERT_TRUE(program.WaitForOutput("step  10/160")) << program.Wait().err;
  StopBySignal(program, SIGINT);
  const Events resumed =
      RunJobForEvents(StoppedJob(GetParam(), "--resume=" + folder));
  EXPECT_LT(EventsOf(resumed, "step").size(),
            EventsOf(straight, "step").size());
  EXPECT_EQ(Fingerprint(resumed), Fingerprint(straight));
}

TEST_P(StoppedOnSimNcclTest, AKilledRankEndsTheOthersAndIsNamed) {
  Program program(kTrain, StoppedJob(GetParam(), "--epochs=1000000"));
  ASSERT_TRUE(program.WaitForOutput("step      10/")) << program.Wait().err;
  EXPECT_THAT(StopBySignalToRank(program, 1, SIGKILL).err, HasSubstr("rank 1"));
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoppedOnSimNcclTest,
                         testing::ValuesIn(Layouts()), RowName<Layout>);

Flags SimJob(const Flags& more = {}) {
  return Joined(Small("--device=sim --max_steps=2"), more);
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

class CapTest
    : public testing::TestWithParam<std::pair<const char*, const char*>> {};

// The cap is the peak less what its four digits leave open.
TEST_P(CapTest, UnderThePeakEndsTheJobAndAboveItDoesNot) {
  const Flags job = SimJob(Words(GetParam().second));
  const Events free = RunJobForEvents(job);
  double peak = 0;
  for (const auto& each : free.back()["device_memory"]) {
    peak = std::max(peak, KiB(each));
  }
  Program program(kTrain, Joined(job, {Cap(peak * 0.998)}));
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

  const Events raised = RunJobForEvents(Joined(job, {Cap(peak * 1.002)}));
  EXPECT_EQ(Fingerprint(raised), Fingerprint(free));
}

INSTANTIATE_TEST_SUITE_P(
    All, CapTest,
    testing::Values(
        std::pair("OneDevice", "--nproc_per_node=1"),
        std::pair("TwoDevices", "--nproc_per_node=1 --devices_per_rank=2"),
        std::pair("TwoRanks", "--nproc_per_node=2"),
        std::pair("Hybrid", "--nproc_per_node=2 --devices_per_rank=2")),
    [](const auto& info) { return std::string(info.param.first); });

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
                                 "--balance=fc2", "--device_memory=40KiB"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("sim:1 is out of memory"),
                                HasSubstr("of 40 KiB in use"), HasSubstr("fc4"),
                                HasSubstr("stage 1, on sim:1")));
}

}  // namespace
}  // namespace tandem::sim_devices_test
