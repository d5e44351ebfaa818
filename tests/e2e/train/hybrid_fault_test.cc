// Replicas of several stages of which one process dies or freezes, at each
// phase of a step: every other rank ends in time, with a line that names it by
// its number in the job.

#include <chrono>
#include <iostream>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/fault_ranks.h"

namespace tandem::hybrid_fault_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = FaultRanks::Clock;

constexpr int kCells = 68;

// Two replicas of two stages: over four ranks, or over a pair of devices each.
enum class Place { kRanks, kDevices };

int RanksIn(Place place) { return place == Place::kRanks ? 4 : 2; }

Flags Job(Place place, const std::string& backend, int timeout_s) {
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

struct Cell {
  Place place;
  std::string backend;
  std::string phase;
  std::string action;
  int culprit;
};

std::vector<Cell> Cells() {
  const std::vector<std::string> phases = {"forward:1", "backward:2",
                                           "bucket:0", "before_optimizer"};
  std::vector<Cell> cells;
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

std::string ToString(const Cell& cell) {
  return std::string(cell.place == Place::kRanks ? "4 ranks"
                                                 : "2 ranks of 2 devices") +
         ", " + cell.backend + ", " + cell.phase + ", " + cell.action +
         ", rank " + std::to_string(cell.culprit);
}

// For GoogleTest.
void PrintTo(const Cell& cell, std::ostream* out) { *out << ToString(cell); }

class HybridFaultTest : public testing::TestWithParam<Cell> {};

TEST_P(HybridFaultTest, EveryOtherRankNamesTheCulpritInTime) {
  const Cell& cell = GetParam();
  std::cout << ToString(cell) << "\n";
  const bool dies = cell.action == "kill";
  const std::string fault = FaultAt(
      PointOf(cell.phase, cell.place, cell.culprit), cell.culprit, cell.action);
  FaultRanks ranks(
      Job(cell.place, cell.backend, dies ? kLongTimeout : kShortTimeout),
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

INSTANTIATE_TEST_SUITE_P(Cells, HybridFaultTest, testing::ValuesIn(Cells()));

TEST(HybridFaultTestCells, NoneIsMissing) {
  EXPECT_EQ(Cells().size(), static_cast<size_t>(kCells));
}

}  // namespace
}  // namespace tandem::hybrid_fault_test
