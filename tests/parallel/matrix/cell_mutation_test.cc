// Cells that are broken on purpose must not give one device's bits.

#include "tests/parallel/matrix/cell_mutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "models/classification_loss.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/cell_check.h"
#include "tests/parallel/matrix/cell_problem.h"
#include "tests/parallel/matrix/matrix_cell.h"

namespace tandem::cell_mutation_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Broken {
  CellMutation mutation;
  std::string model;
  std::string place;
};

class CellMutationTest : public testing::TestWithParam<Broken> {};

TEST_P(CellMutationTest, IsFound) {
  const MatrixCell cell = {GetParam().model, "1f1b", 2,       2,
                           GetParam().place, 12,     "never", "cpu"};
  const auto right = TryCell(cell);
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_THAT(right->differences.found, IsEmpty());
  EXPECT_THAT(right->others, IsEmpty());
  const auto broken = TryCell(cell, GetParam().mutation);
  ASSERT_TRUE(broken.ok()) << broken.status();
  ASSERT_THAT(broken->differences.found, Not(IsEmpty()));
  // Nothing but the bits gives it away.
  EXPECT_THAT(broken->others, IsEmpty());
  std::cout << ToString(cell) << ", " << ToString(GetParam().mutation) << ": "
            << broken->differences.found.size() << " differences, the first in "
            << broken->differences.found.front() << "\n";
  // Which losses differ depends on the processor: a swap shows in last bits,
  // and a mean of some may be the same.
  EXPECT_THAT(broken->differences.found, Contains(HasSubstr("loss of step ")));
  EXPECT_THAT(broken->differences.found,
              Contains(HasSubstr(".weight on rank 0")));
  // The very first forward is still right.
  if (GetParam().mutation != CellMutation::kSwappedMicrobatch) {
    EXPECT_THAT(broken->differences.found,
                Not(Contains("loss of step 0 on rank 0")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mutations, CellMutationTest,
    testing::Values(
        Broken{CellMutation::kBucketReducedTwice, "mlp_dropout", "devices"},
        Broken{CellMutation::kBucketReducedTwice, "resnet18", "ranks"},
        Broken{CellMutation::kBucketReducedTwice, "gpt_tiny_tied", "ranks"},
        Broken{CellMutation::kSwappedMicrobatch, "mlp_dropout", "ranks"},
        Broken{CellMutation::kSwappedMicrobatch, "resnet18", "devices"},
        Broken{CellMutation::kSwappedMicrobatch, "gpt_tiny_tied", "ranks"},
        Broken{CellMutation::kMissingTiedGradient, "gpt_tiny_tied", "devices"},
        Broken{CellMutation::kMissingTiedGradient, "gpt_tiny_tied", "ranks"}));

// Backwards of two microbatches in one stage, exchanged in the schedule.
TEST(CellMutationsTest, ASwappedBackwardIsRefusedByName) {
  MatrixCell cell;
  cell.model = "mlp_dropout";
  cell = ReferenceCell(cell);
  const CellProblem problem = MakeProblem(cell);
  auto options = RankOptions(cell, problem, 0);
  ASSERT_TRUE(options.ok()) << options.status();
  std::vector<Action>& actions = options->schedule.actions[0];
  ASSERT_EQ(actions[1].kind, ActionKind::kBackward);
  ASSERT_EQ(actions[3].kind, ActionKind::kBackward);
  // F0 F1 B1 B0 ...
  std::swap(actions[1], actions[2]);
  std::swap(actions[2], actions[3]);
  const auto made =
      MeshStrategy::Create(problem.specs, CrossEntropy, *options, nullptr);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("in no order"));
}

}  // namespace
}  // namespace tandem::cell_mutation_test
