// A rank that dies or freezes among ranks that share layers (tensor
// parallelism), parameters or gradients (shards): whom each survivor names, how
// soon it ends, and that nothing is left.

#include <chrono>
#include <iostream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/faults/fault_ranks.h"

namespace tandem::axis_fault_test {
namespace {

using ::testing::ElementsAre;
using Clock = FaultRanks::Clock;
using std::chrono::seconds;

struct Cell {
  std::string mesh;
  int ranks;
  std::string backend;
  std::string point;
  std::string action;
  int culprit;
};

std::vector<Cell> Cells() {
  std::vector<Cell> cells;
  const auto add = [&](const std::string& mesh, int ranks,
                       const std::vector<std::string>& points) {
    for (const std::string backend : {"shm", "gloo", "sim_nccl"}) {
      for (const std::string& point : points) {
        cells.push_back({mesh, ranks, backend, point, "kill", 0});
        cells.push_back({mesh, ranks, backend, point, "kill", ranks - 1});
        cells.push_back({mesh, ranks, backend, point, "stop", ranks - 1});
      }
    }
  };
  add("--tensor=2", 2, {"tensor_parallel", "before_optimizer"});
  add("--tensor=2 --pipe=2", 4, {"tensor_parallel", "before_optimizer"});
  add("--tensor=2 --shard=parameters", 4, {"tensor_parallel"});
  add("--shard=parameters", 2, {"after_forward", "before_optimizer"});
  // Ranks without the loss have no end of forward.
  add("--pipe=2 --shard=parameters --noreshard_after_forward", 4,
      {"before_optimizer"});
  // Two groups that share parameters, of two ranks each; and gradients alone.
  add("--shard=parameters --data_shard=2", 4,
      {"after_forward", "before_optimizer"});
  add("--shard=gradients", 2, {"after_forward", "before_optimizer"});
  return cells;
}

constexpr int kCells = 108;

std::string ToString(const Cell& cell) {
  return absl::StrCat(cell.mesh, ", ", cell.ranks, " ranks, ", cell.backend,
                      ", ", cell.point, ", ", cell.action, ", rank ",
                      cell.culprit);
}

// For GoogleTest.
void PrintTo(const Cell& cell, std::ostream* out) { *out << ToString(cell); }

class AxisFaultTest : public testing::TestWithParam<Cell> {};

TEST_P(AxisFaultTest, EveryOtherRankNamesTheCulpritInTime) {
  const Cell& cell = GetParam();
  std::cout << ToString(cell) << "\n";
  const bool dies = cell.action == "kill";
  const int timeout = dies ? kLongTimeout : kShortTimeout;
  const Flags job =
      Joined(Small(absl::StrCat(
                 "--model=gpt_tiny --dataset=synthetic_tokens "
                 "--synthetic_shape=8 --epochs=1000 --batch_size=8 --timeout=",
                 timeout, " ", cell.mesh)),
             BackendFlags(cell.backend));
  FaultRanks ranks(job, cell.culprit,
                   FaultAt(cell.point, cell.culprit, cell.action), {},
                   cell.ranks);
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
  }
  ranks.ExpectNoProcessLeft();
}

INSTANTIATE_TEST_SUITE_P(Cells, AxisFaultTest, testing::ValuesIn(Cells()));

TEST(AxisFaultTestCells, NoneIsMissing) {
  std::cout << Cells().size() << " cells\n";
  EXPECT_EQ(Cells().size(), static_cast<size_t>(kCells));
}

}  // namespace
}  // namespace tandem::axis_fault_test
