// A rank that dies inside Join, with inputs or without, or inside
// SyncBatchNorm: every survivor ends in time and names it.

#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/program.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using testing::ContainsRegex;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
// The job's own timeout is 60 s: it plays no part.
constexpr seconds kTimeToSay(30);

struct Cell {
  std::string point;
  int culprit;
  int step;  // of its own; 0: when it shadows
  bool normalises;
};

void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.point << ", rank " << cell.culprit << ", step " << cell.step;
}

class JoinFaultTest : public testing::TestWithParam<Cell> {};

TEST_P(JoinFaultTest, EverySurvivorNamesTheCulpritInTime) {
  const Cell& cell = GetParam();
  const std::string port = std::to_string(FreePort());
  std::vector<std::unique_ptr<Program>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ProgramOptions options;
    const std::string number = std::to_string(rank);
    options.environment = {
        {"RANK", number},
        {"LOCAL_RANK", number},
        {"WORLD_SIZE", std::to_string(kRanks)},
        {"LOCAL_WORLD_SIZE", std::to_string(kRanks)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", port},
        {"TANDEM_FAULT",
         "point=" + cell.point + ",rank=" + std::to_string(cell.culprit) +
             ",step=" + std::to_string(cell.step) + ",action=kill"}};
    if (cell.normalises) options.environment["SYNC_BATCH_NORM"] = "1";
    ranks.push_back(std::make_unique<Program>(
        "tests/parallel/join/uneven_job", std::vector<std::string>(), options));
  }
  Program& culprit = *ranks[static_cast<size_t>(cell.culprit)];
  const ProgramResult death = culprit.Wait();
  EXPECT_EQ(death.exit_code, 128 + SIGKILL) << death.err;
  const auto out = Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == cell.culprit) continue;
    const ProgramResult result = ranks[static_cast<size_t>(rank)]->Wait();
    EXPECT_LT(Clock::now() - out, kTimeToSay) << result.err;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err,
                ContainsRegex("ranks? " + std::to_string(cell.culprit) +
                              " \\(pid [0-9]+\\) (died|left)"))
        << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cells, JoinFaultTest,
    testing::Values(Cell{"join", 1, 3, false}, Cell{"join", 2, 5, false},
                    Cell{"join", 0, 0, false}, Cell{"bucket:0", 0, 0, false},
                    Cell{"bucket:0", 1, 4, false},
                    Cell{"sync_batch_norm:forward", 0, 3, true},
                    Cell{"sync_batch_norm:forward", 2, 3, true},
                    Cell{"sync_batch_norm:backward", 1, 3, true}));

}  // namespace
}  // namespace tandem
