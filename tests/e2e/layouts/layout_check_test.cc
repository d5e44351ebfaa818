// The checks themselves: each must find what it is there for.

#include "tests/e2e/layouts/layout_check.h"

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/e2e/layouts/layout_cell.h"
#include "tests/e2e/layouts/layout_run.h"

namespace tandem::layout_check_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

const LayoutCell& Cell() {
  static const auto* const cell =
      new LayoutCell{"mlp_dropout", "1f1b", 2, 2, "ranks", 12, "never", "cpu"};
  return *cell;
}

const LayoutRun& Right() {
  static const auto* const run = new LayoutRun(*RunLayout(Cell()));
  return *run;
}

LayoutRun Changed(const std::function<void(LayoutRun*)>& change) {
  LayoutRun run = Right();
  change(&run);
  return run;
}

std::vector<std::string> DifferencesAfter(
    const std::function<void(LayoutRun*)>& change) {
  return Differences(Cell(), Changed(change), **OneDevicesRun(Cell()));
}

std::vector<std::string> ConfusionsAfter(
    const std::function<void(LayoutRun*)>& change) {
  return Confusions(Cell(), Changed(change));
}

TEST(LayoutCheckTest, NothingIsFoundWhereNothingIsWrong) {
  ASSERT_EQ(Right().size(), 4u);
  EXPECT_THAT(DifferencesAfter([](LayoutRun*) {}), IsEmpty());
  EXPECT_THAT(Confusions(Cell(), Right()), IsEmpty());
  EXPECT_THAT(Idleness(Right()), IsEmpty());
}

TEST(LayoutCheckTest, EveryDifferenceIsNamed) {
  EXPECT_THAT(DifferencesAfter(
                  [](LayoutRun* run) { (*run)[1].losses[3] *= 1 + 1e-15; }),
              ElementsAre("loss of step 3 on rank 1"));
  EXPECT_THAT(
      DifferencesAfter([](LayoutRun* run) { (*run)[2].losses.pop_back(); }),
      ElementsAre("9 losses on rank 2, not 10"));
  EXPECT_THAT(DifferencesAfter([](LayoutRun* run) {
                auto& [name, tensor] = (*run)[3].state.front();
                tensor = tensor.clone();
                tensor.view({-1})[0].mul_(1 + 2e-7);
                name = Right()[3].state.front().first;
              }),
              ElementsAre(Right()[3].state.front().first + " on rank 3"));
  EXPECT_THAT(DifferencesAfter([](LayoutRun* run) {
                (*run)[0].state.push_back((*run)[0].state.front());
              }),
              ElementsAre(Right()[0].state.front().first +
                          " on rank 0 is one too many"));
  EXPECT_THAT(
      DifferencesAfter([](LayoutRun* run) { (*run)[2].state.pop_back(); }),
      ElementsAre(Right()[2].state.back().first + " is on no rank up to 3"));
}

TEST(LayoutCheckTest, WhatIsNotDistinctIsNamed) {
  EXPECT_THAT(ConfusionsAfter([](LayoutRun* run) {
                (*run)[2].samples = (*run)[0].samples;
              }),
              ElementsAre("1 distinct sets of samples, not 2"));
  EXPECT_THAT(ConfusionsAfter([](LayoutRun* run) {
                (*run)[3].stages[0].thread = (*run)[2].stages[0].thread;
              }),
              ElementsAre("3 distinct threads, not 4"));
  EXPECT_THAT(ConfusionsAfter([](LayoutRun* run) {
                (*run)[2].stages[0].storages = (*run)[0].stages[0].storages;
              }),
              ElementsAre("3 distinct memories, not 4"));
  EXPECT_THAT(ConfusionsAfter([](LayoutRun* run) {
                (*run)[1].stages[0] = (*run)[0].stages[0];
              }),
              Contains("3 distinct parts of the model, not 4"));
  EXPECT_THAT(
      ConfusionsAfter([](LayoutRun* run) { (*run)[1].stages[0].layers = 0; }),
      ElementsAre("stage 1 is empty"));
  EXPECT_THAT(
      ConfusionsAfter([](LayoutRun* run) { (*run)[1].strategy = "single"; }),
      ElementsAre("strategy single, not hybrid"));
  LayoutCell simulated = Cell();
  simulated.device = "sim";
  EXPECT_THAT(Confusions(simulated, Right()),
              ElementsAre("1 distinct devices, not 4"));
}

TEST(LayoutCheckTest, WhatDidNotTrainIsNamed) {
  EXPECT_THAT(Idleness(Changed([](LayoutRun* run) {
                (*run)[1].unmoved.push_back("fc_out.bias");
                (*run)[2].losses[0] = std::numeric_limits<double>::infinity();
              })),
              ElementsAre("fc_out.bias did not move", "a loss is inf"));
}

}  // namespace
}  // namespace tandem::layout_check_test
