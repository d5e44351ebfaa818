// A rank that dies, freezes, fails or differs, at a named point of a step,
// among replicas and among replicas of several stages: what each survivor says,
// whom it names, how soon it ends, and that nothing is left.

#include <signal.h>

#include <chrono>
#include <iostream>
#include <ostream>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/faults/fault_ranks.h"

namespace tandem::fault_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = FaultRanks::Clock;
using std::chrono::seconds;

constexpr int kCells = 36;

// The culprit is out: every other rank says so, and nothing else, in time.
void ExpectEveryoneNames(FaultRanks& ranks, int culprit,
                         const std::string& action,
                         void (*check)(const std::string& said) = nullptr) {
  ASSERT_TRUE(ranks.AwaitFault());
  const auto out = Clock::now();
  const auto bound = seconds(action == "stop" ? kShortTimeout : 0) + kTimeToSay;
  for (const int rank : ranks.survivors()) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_LT(Clock::now() - out, bound) << "rank " << rank;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(RanksBlamed(result.err), ElementsAre(culprit)) << result.err;
    // In which step; a fault after the reduction shows in the next one.
    EXPECT_TRUE(std::regex_search(result.err, std::regex("of step [34]\\)")))
        << result.err;
    if (check != nullptr) check(result.err);
  }
  ranks.ExpectNoProcessLeft();
}

int TimeoutFor(const std::string& action) {
  return action == "stop" ? kShortTimeout : kLongTimeout;
}

// After bucket 1 was started: what was waited for is that one, the one before,
// which may still have been on its way, or the next.
void ExpectBucketNamed(const std::string& said) {
  std::smatch match;
  ASSERT_TRUE(std::regex_search(
      said, match, std::regex("bucket ([0-2]) \\(([^)]*)\\) of step 3")))
      << said;
  EXPECT_EQ(match[2], kFaultBuckets[std::stoi(match[1])]) << said;
}

// Backend, point, action, culprit.
using Cell = std::tuple<std::string, std::string, std::string, int>;

class FaultTest : public testing::TestWithParam<Cell> {};

TEST_P(FaultTest, EverySurvivorNamesTheCulpritInTime) {
  const auto& [backend, point, action, culprit] = GetParam();
  std::cout << backend << ", " << point << ", " << action << ", rank "
            << culprit << "\n";
  FaultRanks ranks(FaultJob(backend, TimeoutFor(action)), culprit,
                   FaultAt(point, culprit, action));
  ExpectEveryoneNames(ranks, culprit, action,
                      point == "bucket:1" ? &ExpectBucketNamed : nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    Cells, FaultTest,
    testing::Combine(testing::Values("shm", "gloo", "sim_nccl"),
                     testing::Values("after_forward", "bucket:1",
                                     "before_optimizer"),
                     testing::Values("kill", "stop"), testing::Values(0, 1)));

TEST(FaultTestCells, NoneIsMissing) {
  EXPECT_EQ(TestsIn("Cells/FaultTest"), kCells);
}

class BackendTest : public testing::TestWithParam<const char*> {};

// Rank 0, which serves the store, keeps the others waiting until they ask who
// is late, and then is out.
TEST_P(BackendTest, APendingWarningPutsNothingOff) {
  for (const std::string action : {"kill", "stop"}) {
    Flags flags = FaultJob(GetParam(), TimeoutFor(action));
    flags.push_back("--straggler_warning=1");
    FaultRanks ranks(flags, 0,
                     FaultAt("after_forward", 0, "delay:2") + ";" +
                         FaultAt("after_forward", 0, action));
    ExpectEveryoneNames(ranks, 0, action);
  }
}

void ExpectUpdatesNamed(const std::string& said) {
  EXPECT_THAT(said, HasSubstr("updates at the end of step 3"));
}

// On streams: a host that comes so far is ahead of its device.
void ExpectGradientsOrUpdatesNamed(const std::string& said) {
  if (said.find("reduce") == std::string::npos) return ExpectUpdatesNamed(said);
  EXPECT_TRUE(std::regex_search(
      said, std::regex("reduce #[0-9]+ \\(bucket [0-3] .* of step 3\\)")))
      << said;
}

// Others wait for the values that it should have updated.
TEST_P(BackendTest, WhoIsOutOfASharedOptimizerIsNamed) {
  for (const std::string action : {"kill", "stop"}) {
    Flags flags = FaultJob(GetParam(), TimeoutFor(action));
    flags.push_back("--shard=optimizer");
    FaultRanks ranks(flags, 1, FaultAt("before_optimizer", 1, action));
    const bool on_streams = std::string(GetParam()) == "sim_nccl";
    ExpectEveryoneNames(
        ranks, 1, action,
        on_streams ? &ExpectGradientsOrUpdatesNamed : &ExpectUpdatesNamed);
  }
}

TEST_P(BackendTest, AFrozenServerOfTheStoreIsNamedInTheWarning) {
  Flags flags = FaultJob(GetParam(), kShortTimeout);
  flags.push_back("--straggler_warning=1");
  FaultRanks ranks(flags, 0, FaultAt("after_forward", 0, "stop"));
  ExpectEveryoneNames(ranks, 0, "stop", [](const std::string& said) {
    EXPECT_TRUE(std::regex_search(
        said, std::regex("has waited .*; not heard of: rank 0 of the job, "
                         "which serves the store: it does not answer")))
        << said;
  });
}

TEST_P(BackendTest, AnErrorOnOneRankIsToldByAll) {
  for (const int culprit : {0, 1}) {
    FaultRanks ranks(FaultJob(GetParam(), kLongTimeout), culprit,
                     FaultAt("before_optimizer", culprit, "fail"));
    ASSERT_TRUE(ranks[culprit].WaitForOutput("TANDEM_FAULT acts at"));
    const auto failed = Clock::now();
    for (int rank = 0; rank < kFaultRanks; ++rank) {
      const ProgramResult result = ranks[rank].Wait();
      EXPECT_LT(Clock::now() - failed, kTimeToSay) << "rank " << rank;
      EXPECT_EQ(result.exit_code, 1) << result.err;
      EXPECT_THAT(result.err, HasSubstr("before_optimizer")) << "rank " << rank;
      EXPECT_THAT(result.err, HasSubstr("rank " + std::to_string(culprit)));
      EXPECT_THAT(RanksBlamed(result.err), ElementsAre()) << result.err;
    }
    ranks.ExpectNoProcessLeft();
  }
}

TEST_P(BackendTest, ADifferentModelIsNamedByAll) {
  FaultRanks ranks(FaultJob(GetParam(), kLongTimeout), 1, "",
                   {"--model=mlp_deep"});
  const std::string differs = "the ranks' settings differ: --model";
  ASSERT_TRUE(ranks[1].WaitForOutput(differs));
  const auto found = Clock::now();
  for (int rank = 0; rank < kFaultRanks; ++rank) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_LT(Clock::now() - found, kTimeToSay) << "rank " << rank;
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(differs)) << "rank " << rank;
    EXPECT_THAT(RanksBlamed(result.err), ElementsAre()) << result.err;
  }
  ranks.ExpectNoProcessLeft();
}

TEST_P(BackendTest, ALateRankIsNamedAndTheJobGoesOn) {
  Flags flags = FaultJob(GetParam(), kLongTimeout);
  flags.push_back("--straggler_warning=1");
  flags.push_back("--max_steps=4");
  FaultRanks ranks(flags, 1, FaultAt("after_forward", 1, "delay:3"));
  ASSERT_TRUE(ranks[1].WaitForOutput("TANDEM_FAULT acts at"));
  const auto late = Clock::now();
  std::string said;
  for (int rank = 0; rank < kFaultRanks; ++rank) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_LT(Clock::now() - late, seconds(3) + kTimeToSay) << "rank " << rank;
    EXPECT_EQ(result.exit_code, 0) << result.err;
    said += result.err;
  }
  EXPECT_TRUE(std::regex_search(said, std::regex("rank 1 is late: rank [02]")))
      << said;
  EXPECT_THAT(said, HasSubstr("of step 3"));
  ranks.ExpectNoProcessLeft();
}

// Rank 1 is there and does not come: who waits for it, on the host or for a
// stream, sees the interrupt.
TEST_P(BackendTest, AnInterruptEndsTheWaitForAnAbsentRank) {
  Flags flags = FaultJob(GetParam(), 4 * kLongTimeout);
  flags.push_back("--straggler_warning=1");
  flags.push_back("--stop_grace=10");
  FaultRanks ranks(flags, 1, FaultAt("bucket:1", 1, "stop"), {}, /*ranks=*/2);
  ASSERT_TRUE(ranks.AwaitFault());
  ASSERT_TRUE(ranks[0].WaitForOutput("has waited"));
  ranks[0].Signal(SIGTERM);
  const auto asked = Clock::now();
  const ProgramResult result = ranks[0].Wait();
  EXPECT_LT(Clock::now() - asked, kTimeToSay);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  const std::string last = "train: stopped by SIGTERM while it waited: ";
  ASSERT_THAT(result.err, HasSubstr(last));
  ExpectBucketNamed(result.err.substr(result.err.find(last)));
  ranks.ExpectNoProcessLeft();
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendTest,
                         testing::Values("shm", "gloo", "sim_nccl"));

constexpr int kHybridCells = 68;

// Two replicas of two stages: over four ranks, or over a pair of devices each.
enum class Place { kRanks, kDevices };

int RanksIn(Place place) { return place == Place::kRanks ? 4 : 2; }

Flags HybridJob(Place place, const std::string& backend, int timeout_s) {
  return Joined(Small("--strategy=hybrid --epochs=1000 --batch_size=16 "
                      "--microbatches=4 --timeout=" +
                      std::to_string(timeout_s)),
                {place == Place::kRanks ? "--pipe=2" : "--devices_per_rank=2"},
                BackendFlags(backend));
}

// The phase of a step, as the fault's point on a rank: forward and backward
// are a stage's.
std::string PointOf(const std::string& phase, Place place, int rank) {
  if (phase != "forward:1" && phase != "backward:2") return phase;
  const int stage = place == Place::kRanks ? rank % 2 : 1;
  return "stage:" + std::to_string(stage) + ":" + phase;
}

struct HybridCell {
  Place place;
  std::string backend;
  std::string phase;
  std::string action;
  int culprit;
};

std::vector<HybridCell> HybridCells() {
  const std::vector<std::string> phases = {"forward:1", "backward:2",
                                           "bucket:0", "before_optimizer"};
  std::vector<HybridCell> cells;
  for (const std::string& phase : phases) {
    for (int culprit = 0; culprit < 4; ++culprit) {
      cells.push_back({Place::kRanks, "shm", phase, "kill", culprit});
      cells.push_back({Place::kRanks, "gloo", phase, "kill", culprit});
    }
    for (const int culprit : {0, 3}) {
      cells.push_back({Place::kRanks, "shm", phase, "stop", culprit});
    }
    for (const int culprit : {0, 1}) {
      cells.push_back({Place::kDevices, "shm", phase, "kill", culprit});
    }
    cells.push_back({Place::kDevices, "shm", phase, "stop", 1});
    // Rank 0 serves the store; rank 3 has a replica's last stage.
    for (const int culprit : {0, 3}) {
      cells.push_back({Place::kRanks, "sim_nccl", phase, "kill", culprit});
    }
    cells.push_back({Place::kRanks, "sim_nccl", phase, "stop", 3});
    cells.push_back({Place::kDevices, "sim_nccl", phase, "kill", 1});
  }
  return cells;
}

std::string ToString(const HybridCell& cell) {
  return std::string(cell.place == Place::kRanks ? "4 ranks"
                                                 : "2 ranks of 2 devices") +
         ", " + cell.backend + ", " + cell.phase + ", " + cell.action +
         ", rank " + std::to_string(cell.culprit);
}

// For GoogleTest.
void PrintTo(const HybridCell& cell, std::ostream* out) {
  *out << ToString(cell);
}

class HybridFaultTest : public testing::TestWithParam<HybridCell> {};

TEST_P(HybridFaultTest, EveryOtherRankNamesTheCulpritInTime) {
  const HybridCell& cell = GetParam();
  std::cout << ToString(cell) << "\n";
  const bool dies = cell.action == "kill";
  const std::string fault = FaultAt(
      PointOf(cell.phase, cell.place, cell.culprit), cell.culprit, cell.action);
  FaultRanks ranks(
      HybridJob(cell.place, cell.backend, dies ? kLongTimeout : kShortTimeout),
      cell.culprit, fault, {}, RanksIn(cell.place));
  ASSERT_TRUE(ranks.AwaitFault());
  const auto out = Clock::now();
  const auto bound = seconds(dies ? 0 : kShortTimeout) + kTimeToSay;
  for (const int rank : ranks.survivors()) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_LT(Clock::now() - out, bound) << "rank " << rank << ":\n"
                                         << result.err;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(CausesNamed(result.err), ElementsAre(cell.culprit))
        << "rank " << rank << ":\n"
        << result.err;
    // What it knows for a diagnosis, and what happened.
    EXPECT_THAT(
        absl::StrSplit(absl::StripSuffix(result.err, "\n"), '\n'),
        ElementsAre(HasSubstr("//tools:diagnose"), StartsWith("train: ")));
  }
  ranks.ExpectNoProcessLeft();
}

INSTANTIATE_TEST_SUITE_P(Cells, HybridFaultTest,
                         testing::ValuesIn(HybridCells()));

TEST(HybridFaultTestCells, NoneIsMissing) {
  EXPECT_EQ(HybridCells().size(), static_cast<size_t>(kHybridCells));
}

}  // namespace
}  // namespace tandem::fault_test
