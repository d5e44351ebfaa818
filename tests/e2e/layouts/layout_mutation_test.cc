// Broken on purpose, layouts must not give one device's bits.

#include "tests/e2e/layouts/layout_mutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "models/classification_loss.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/e2e/layouts/layout_cell.h"
#include "tests/e2e/layouts/layout_check.h"
#include "tests/e2e/layouts/layout_problem.h"

namespace tandem::layout_mutation_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Broken {
  LayoutMutation mutation;
  std::string model;
  std::string place;
};

class LayoutMutationTest : public testing::TestWithParam<Broken> {};

TEST_P(LayoutMutationTest, IsFound) {
  const LayoutCell cell = {GetParam().model, "1f1b", 2,       2,
                           GetParam().place, 12,     "never", "cpu"};
  const auto right = TryLayout(cell);
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_THAT(right->differences, IsEmpty());
  EXPECT_THAT(right->others, IsEmpty());
  const auto broken = TryLayout(cell, GetParam().mutation);
  ASSERT_TRUE(broken.ok()) << broken.status();
  ASSERT_THAT(broken->differences, Not(IsEmpty()));
  // Nothing but the bits gives it away.
  EXPECT_THAT(broken->others, IsEmpty());
  std::cout << ToString(cell) << ", " << ToString(GetParam().mutation) << ": "
            << broken->differences.size() << " differences, the first in "
            << broken->differences.front() << "\n";
  // Which losses differ depends on the processor: a swap shows in last bits,
  // and a mean of some may be the same.
  EXPECT_THAT(broken->differences, Contains(HasSubstr("loss of step ")));
  EXPECT_THAT(broken->differences, Contains(HasSubstr(".weight on rank 0")));
  // The very first forward is still right.
  if (GetParam().mutation != LayoutMutation::kSwappedMicrobatch) {
    EXPECT_THAT(broken->differences, Not(Contains("loss of step 0 on rank 0")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mutations, LayoutMutationTest,
    testing::Values(
        Broken{LayoutMutation::kBucketReducedTwice, "mlp_dropout", "devices"},
        Broken{LayoutMutation::kBucketReducedTwice, "resnet18", "ranks"},
        Broken{LayoutMutation::kBucketReducedTwice, "gpt_tiny_tied", "ranks"},
        Broken{LayoutMutation::kSwappedMicrobatch, "mlp_dropout", "ranks"},
        Broken{LayoutMutation::kSwappedMicrobatch, "resnet18", "devices"},
        Broken{LayoutMutation::kSwappedMicrobatch, "gpt_tiny_tied", "ranks"},
        Broken{LayoutMutation::kMissingTiedGradient, "gpt_tiny_tied",
               "devices"},
        Broken{LayoutMutation::kMissingTiedGradient, "gpt_tiny_tied",
               "ranks"}));

// Backwards of two microbatches in one stage, exchanged in the schedule.
TEST(LayoutMutationsTest, ASwappedBackwardIsRefusedByName) {
  LayoutCell cell;
  cell.model = "mlp_dropout";
  cell = OneDevice(cell);
  const LayoutProblem problem = ProblemOf(cell);
  auto options = OptionsOf(cell, problem, 0);
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
}  // namespace tandem::layout_mutation_test
