// A captured step's numbers are written before each replay, and count as it
// does.

#include "parallel/optim/captured_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/cuda/step_kernels.h"

namespace tandem::captured_step_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using When = CapturedStep::When;

TEST(CapturedStepTest, AScopeIsItsThreads) {
  CapturedStep step;
  EXPECT_EQ(CapturedStep::Current(), nullptr);
  {
    const CapturedStep::Scope scope(&step);
    EXPECT_EQ(CapturedStep::Current(), &step);
  }
  EXPECT_EQ(CapturedStep::Current(), nullptr);
}

TEST(CapturedStepTest, AllAreToldInTheirOrder) {
  CapturedStep step;
  std::vector<std::pair<int, double>> told;
  for (int i = 0; i < 2; ++i) {
    step.Add([&told, i](When when, double rate) {
      told.emplace_back(when == When::kNextStep ? i : -1 - i, rate);
    });
  }
  step.Begin(When::kThisStep, 0.5);
  step.Begin(When::kNextStep, 0.25);
  EXPECT_THAT(told, ElementsAre(Pair(-1, 0.5), Pair(-2, 0.5), Pair(0, 0.25),
                                Pair(1, 0.25)));
}

TEST(CapturedStepTest, NumbersHaveTheTypesThatKernelsRead) {
  const StepNumbers numbers = StepNumbers::On(c10::kCPU);
  EXPECT_EQ(numbers.learning_rate.scalar_type(), at::kDouble);
  EXPECT_EQ(numbers.step.scalar_type(), at::kFloat);
  EXPECT_EQ(numbers.of_kernels.numel(), kStepNumbers);
}

}  // namespace
}  // namespace tandem::captured_step_test
