// For each model, every two values of two settings of a layout together,
// against one device's bits; the full product is layout_matrix_main's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/e2e/layouts/layout_cell.h"
#include "tests/e2e/layouts/layout_check.h"
#include "tests/e2e/layouts/layout_run.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

namespace tandem {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

// Of one model.
class LayoutsTest : public testing::TestWithParam<std::string> {};

TEST_P(LayoutsTest, EveryPairOfSettingsGivesOneDevicesBits) {
  std::vector<Combination> all;
  for (const Combination& each : SensibleLayouts()) {
    if (LayoutOf(each).model == GetParam()) all.push_back(each);
  }
  const std::vector<Combination> cover = PairwiseCover(all);
  EXPECT_EQ(CountPairs(cover), CountPairs(all));
  size_t identical = 0;
  for (const Combination& each : cover) {
    const LayoutCell cell = LayoutOf(each);
    SCOPED_TRACE(ToString(cell));
    const auto result = TryLayout(cell);
    ASSERT_TRUE(result.ok()) << result.status();
    const bool is_identical =
        result->differences.empty() && result->others.empty();
    std::cout << ToString(cell) << ": "
              << (is_identical ? "one device's bits" : "WRONG") << std::endl;
    EXPECT_THAT(result->differences, IsEmpty());
    EXPECT_THAT(result->others, IsEmpty());
    if (is_identical) ++identical;
  }
  std::cout << identical << " cells, of " << all.size()
            << " that make sense, cover " << CountPairs(cover)
            << " pairs of settings\n";
  const bool is_divided = GetParam() != "resnet18";
  EXPECT_EQ(identical, is_divided ? 36u : 32u);
  EXPECT_EQ(all.size(), is_divided ? 15264u : 13344u);
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutsTest,
                         testing::ValuesIn(LayoutSettings()[0]),
                         [](const auto& info) { return info.param; });

TEST(LayoutMatrixTest, WhatMakesNoSenseIsRefusedByName) {
  std::map<std::string, int> refusals;
  for (const Combination& each :
       AllCombinations(SizesOf(LayoutSettings()),
                       [](const Combination&) { return true; })) {
    const std::string why = WhyNot(LayoutOf(each));
    if (!why.empty()) ++refusals[why];
  }
  for (const auto& [why, count] : refusals) {
    std::cout << count << " cells: " << why << "\n";
  }
  EXPECT_EQ(refusals.size(), 6u);
}

// Where an epoch ends short, replicas train on nothing, and this shows.
TEST(LayoutMatrixTest, OneDevicesBitsDependOnTheEnds) {
  for (const std::string& model : LayoutSettings()[0]) {
    LayoutCell whole, ends_short;
    whole.model = ends_short.model = model;
    ends_short.ends = "short";
    const auto its = OneDevicesRun(whole);
    ASSERT_TRUE(its.ok()) << its.status();
    const auto others = OneDevicesRun(ends_short);
    ASSERT_TRUE(others.ok()) << others.status();
    const auto found = Differences(OneDevice(whole), **others, **its);
    EXPECT_THAT(found, Not(Contains("loss of step 3 on rank 0")));
    EXPECT_THAT(found, Contains("loss of step 4 on rank 0"));
  }
}

// The matrix compares with several orders of sums, which are not the same.
TEST(LayoutMatrixTest, OneDevicesBitsDependOnTheGroups) {
  for (const std::string& model : LayoutSettings()[0]) {
    LayoutCell cell;
    cell.model = model;
    std::vector<const LayoutRun*> runs;
    for (const int groups : {3, 4, 12}) {
      cell.gradient_groups = groups;
      const auto run = OneDevicesRun(cell);
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_THAT(Confusions(OneDevice(cell), **run), IsEmpty());
      EXPECT_THAT(Idleness(**run), IsEmpty());
      EXPECT_EQ((*run)->front().losses.size(), 10u);
      for (const LayoutRun* other : runs) {
        EXPECT_THAT(Differences(OneDevice(cell), **run, *other),
                    Not(IsEmpty()));
      }
      runs.push_back(*run);
    }
  }
}

// Nor is what is rounded to bf16.
TEST(LayoutMatrixTest, OneDevicesBitsDependOnTheDtype) {
  for (const std::string& model : LayoutSettings()[0]) {
    LayoutCell wide, low;
    wide.model = low.model = model;
    low.dtype = "bf16";
    const auto run = OneDevicesRun(wide);
    ASSERT_TRUE(run.ok()) << run.status();
    const auto other = OneDevicesRun(low);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_THAT(Differences(OneDevice(wide), **other, **run),
                Contains("loss of step 0 on rank 0"));
  }
}

// Nor are sums over parts of microbatches.
TEST(LayoutMatrixTest, OneDevicesBitsDependOnTheParts) {
  LayoutCell cell;
  cell.model = "mlp_dropout";
  std::vector<const LayoutRun*> runs;
  for (const int parts : {1, 2, 3}) {
    cell.parts = parts;
    const auto run = OneDevicesRun(cell);
    ASSERT_TRUE(run.ok()) << run.status();
    for (const LayoutRun* other : runs) {
      EXPECT_THAT(Differences(OneDevice(cell), **run, *other), Not(IsEmpty()));
    }
    runs.push_back(*run);
  }
}

}  // namespace
}  // namespace tandem
