// The checks themselves: each must find what it is there for.

#include "tests/parallel/matrix/cell_check.h"

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/parallel/matrix/cell_run.h"
#include "tests/parallel/matrix/matrix_cell.h"

namespace tandem::cell_check_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;

const MatrixCell& Cell() {
  static const auto* const cell =
      new MatrixCell{"mlp_dropout", "1f1b", 2, 2, "ranks", 12, "never", "cpu"};
  return *cell;
}

const CellRun& Right() {
  static const auto* const run = new CellRun(*RunCell(Cell()));
  return *run;
}

CellRun Changed(const std::function<void(CellRun*)>& change) {
  CellRun run = Right();
  change(&run);
  return run;
}

std::vector<std::string> DifferencesAfter(
    const std::function<void(CellRun*)>& change) {
  return CompareRuns(Cell(), Changed(change), **ReferenceRun(Cell())).found;
}

std::vector<std::string> ConfusionsAfter(
    const std::function<void(CellRun*)>& change) {
  return Confusions(Cell(), Changed(change));
}

TEST(CellCheckTest, NothingIsFoundWhereNothingIsWrong) {
  ASSERT_EQ(Right().size(), 4u);
  EXPECT_THAT(DifferencesAfter([](CellRun*) {}), IsEmpty());
  EXPECT_THAT(Confusions(Cell(), Right()), IsEmpty());
  EXPECT_THAT(Idleness(Right()), IsEmpty());
}

TEST(CellCheckTest, EveryDifferenceIsNamed) {
  EXPECT_THAT(
      DifferencesAfter([](CellRun* run) { (*run)[1].losses[3] *= 1 + 1e-15; }),
      ElementsAre("loss of step 3 on rank 1"));
  EXPECT_THAT(
      DifferencesAfter([](CellRun* run) { (*run)[2].losses.pop_back(); }),
      ElementsAre("9 losses on rank 2, not 10"));
  EXPECT_THAT(DifferencesAfter([](CellRun* run) {
                auto& [name, tensor] = (*run)[3].state.front();
                tensor = tensor.clone();
                tensor.view({-1})[0].mul_(1 + 2e-7);
                name = Right()[3].state.front().first;
              }),
              ElementsAre(Right()[3].state.front().first + " on rank 3"));
  EXPECT_THAT(DifferencesAfter([](CellRun* run) {
                (*run)[0].state.push_back((*run)[0].state.front());
              }),
              ElementsAre(Right()[0].state.front().first +
                          " on rank 0 is one too many"));
  EXPECT_THAT(
      DifferencesAfter([](CellRun* run) { (*run)[2].state.pop_back(); }),
      ElementsAre(Right()[2].state.back().first + " is on no rank up to 3"));
}

// A cell that is not reproducible, on two ranks that have a tensor each, whose
// second one is `value`.
Differences DifferencesWithinRounding(int microbatches, double value) {
  MatrixCell cell;
  cell.model = "mlp_small";
  cell.microbatches = microbatches;
  cell.reproducible = false;
  CellRun reference(1);
  reference[0].losses = {2};
  reference[0].state = {{"a", at::ones({2})},
                        {"b", at::full({2}, 4., at::kDouble)}};
  CellRun run(2, reference[0]);
  run[0].state.pop_back();
  run[1].state = {{"b", at::full({2}, value, at::kDouble)}};
  return CompareRuns(cell, run, reference);
}

TEST(CellCheckTest, OtherOrdersOfSumsMayDifferALittle) {
  EXPECT_EQ(DifferencesWithinRounding(1, 4).greatest, 0);
  EXPECT_THAT(DifferencesWithinRounding(1, 4).found, IsEmpty());
  const Differences little = DifferencesWithinRounding(4, 4.00004);
  EXPECT_THAT(little.found, IsEmpty());
  EXPECT_NEAR(little.greatest, 1e-5, 1e-10);
  EXPECT_EQ(little.where, "b");
  EXPECT_THAT(DifferencesWithinRounding(1, 4.00004).found,
              ElementsAre(EndsWith(" in b")));
  EXPECT_THAT(DifferencesWithinRounding(4, 4.0004).found,
              ElementsAre(EndsWith(" in b")));
  EXPECT_THAT(
      DifferencesWithinRounding(4, std::numeric_limits<double>::quiet_NaN())
          .found,
      ElementsAre(EndsWith(" in b")));
}

TEST(CellCheckTest, WhatIsNotDistinctIsNamed) {
  EXPECT_THAT(ConfusionsAfter(
                  [](CellRun* run) { (*run)[2].samples = (*run)[0].samples; }),
              ElementsAre("1 distinct sets of samples, not 2"));
  EXPECT_THAT(ConfusionsAfter([](CellRun* run) {
                (*run)[3].stages[0].thread = (*run)[2].stages[0].thread;
              }),
              ElementsAre("3 distinct threads, not 4"));
  EXPECT_THAT(ConfusionsAfter([](CellRun* run) {
                (*run)[2].stages[0].storages = (*run)[0].stages[0].storages;
              }),
              ElementsAre("3 distinct memories, not 4"));
  EXPECT_THAT(ConfusionsAfter([](CellRun* run) {
                (*run)[1].stages[0] = (*run)[0].stages[0];
              }),
              Contains("3 distinct parts of the model, not 4"));
  EXPECT_THAT(
      ConfusionsAfter([](CellRun* run) { (*run)[1].stages[0].layers = 0; }),
      ElementsAre("stage 1 is empty"));
  EXPECT_THAT(
      ConfusionsAfter([](CellRun* run) { (*run)[1].strategy = "single"; }),
      ElementsAre("strategy single, not hybrid"));
  MatrixCell simulated = Cell();
  simulated.device = "sim";
  EXPECT_THAT(Confusions(simulated, Right()),
              ElementsAre("1 distinct devices, not 4"));
}

TEST(CellCheckTest, WhatDidNotTrainIsNamed) {
  EXPECT_THAT(Idleness(Changed([](CellRun* run) {
                (*run)[1].unmoved.push_back("fc_out.bias");
                (*run)[2].losses[0] = std::numeric_limits<double>::infinity();
              })),
              ElementsAre("fc_out.bias did not move", "a loss is inf"));
}

}  // namespace
}  // namespace tandem::cell_check_test
