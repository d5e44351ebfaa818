// Every two values of two settings of a cell together, against one device's
// bits or the model in one piece; the full product is matrix_main's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/cell_check.h"
#include "tests/parallel/matrix/cell_run.h"
#include "tests/parallel/matrix/matrix_cell.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

namespace tandem {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<std::string>& ReproducibleModels() {
  return CellSettings(true)[0].values;
}

// A part of the matrix, in which every two values meet.
struct Cover {
  std::string name;
  bool reproducible;
  size_t sensible;  // cells that make sense
  size_t cells;     // that cover them
};

class MatrixTest : public testing::TestWithParam<Cover> {
 protected:
  // Reproducible cells by model.
  static std::vector<Combination> Sensible() {
    const Cover& part = GetParam();
    std::vector<Combination> all;
    for (const Combination& each : SensibleCells(part.reproducible)) {
      const MatrixCell cell = MakeCell(part.reproducible, each);
      if (!part.reproducible || cell.model == part.name) all.push_back(each);
    }
    return all;
  }
};

TEST_P(MatrixTest, EveryPairOfSettingsTrainsAsOneDeviceDoes) {
  const std::vector<Combination> all = Sensible();
  const std::vector<Combination> cover = PairwiseCover(all);
  EXPECT_EQ(CountPairs(cover), CountPairs(all));
  size_t right = 0, same_bits = 0;
  for (const Combination& each : cover) {
    const MatrixCell cell = MakeCell(GetParam().reproducible, each);
    SCOPED_TRACE(ToString(cell));
    const auto result = TryCell(cell);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) continue;
    const Differences& differences = result->differences;
    std::cout << ToString(cell) << ": "
              << (result->is_right() ? "right" : "WRONG") << ", difference "
              << differences.greatest << " " << differences.where << std::endl;
    EXPECT_THAT(differences.found, IsEmpty());
    EXPECT_THAT(result->others, IsEmpty());
    if (!result->is_right()) continue;
    ++right;
    if (differences.greatest == 0) ++same_bits;
  }
  std::cout << right << " cells, of " << all.size()
            << " that make sense, cover " << CountPairs(cover)
            << " pairs of settings; " << same_bits << " have the same bits\n";
  EXPECT_EQ(right, GetParam().cells);
  EXPECT_EQ(all.size(), GetParam().sensible);
}

INSTANTIATE_TEST_SUITE_P(
    Covers, MatrixTest,
    testing::Values(Cover{"within_rounding", false, 14184, 51},
                    Cover{"mlp_dropout", true, 15264, 36},
                    Cover{"resnet18", true, 13344, 32},
                    Cover{"gpt_tiny_tied", true, 15264, 36}),
    [](const auto& info) { return info.param.name; });

TEST(MatrixSettingsTest, WhatMakesNoSenseIsRefusedByName) {
  std::map<std::string, int> refusals;
  for (const bool reproducible : {false, true}) {
    std::map<std::string, int> reason_counts;
    for (const Combination& each :
         AllCombinations(SizesOf(CellSettings(reproducible)),
                         [](const Combination&) { return true; })) {
      const std::string why = WhyNot(MakeCell(reproducible, each));
      if (!why.empty()) ++reason_counts[why];
    }
    for (const auto& [why, count] : reason_counts) {
      std::cout << count << " cells: " << why << "\n";
    }
    EXPECT_EQ(reason_counts.size(), reproducible ? 6u : 4u);
    refusals.merge(reason_counts);
  }
  EXPECT_EQ(refusals.size(), 7u);
}

TEST(MatrixSettingsTest, TheLibraryRefusesThemInItsOwnWords) {
  const auto text = [](const auto& status) {
    return std::string(status.status().message());
  };
  EXPECT_THAT(text(MakeSchedule("zb_v", {3, 1, 4})), HasSubstr("zb_v"));
  EXPECT_THAT(text(MakeSchedule("interleaved_1f1b", {2, 2, 3})),
              HasSubstr("multiple"));
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule("1f1b", {2, 1, 2});
  options.cuts = {1};
  options.devices = {c10::Device(c10::kCPU)};
  ModelOptions model;
  model.name = "mlp_small";
  model.input_shape = {3};
  model.classes = 2;
  const LayerSpecs specs = *MakeModel(model);
  EXPECT_THAT(text(MeshStrategy::Create(specs, CrossEntropy, options, nullptr)),
              HasSubstr("is for 2 devices, but there are 1: 1 ranks of 1"));
  options.devices = {c10::Device(c10::kCPU), c10::Device(c10::kCPU)};
  options.cuts = {1, 2};
  EXPECT_THAT(text(MeshStrategy::Create(specs, CrossEntropy, options, nullptr)),
              HasSubstr("2 cuts make 3 stages, but schedule 1f1b has 2"));
}

// Where an epoch ends short, replicas train on nothing, and this shows.
TEST(ReferenceTest, OneDevicesBitsDependOnTheEnds) {
  for (const std::string& model : ReproducibleModels()) {
    MatrixCell whole, ends_short;
    whole.model = ends_short.model = model;
    ends_short.ends = "short";
    const auto whole_run = ReferenceRun(whole);
    ASSERT_TRUE(whole_run.ok()) << whole_run.status();
    const auto others = ReferenceRun(ends_short);
    ASSERT_TRUE(others.ok()) << others.status();
    const auto found =
        CompareRuns(ReferenceCell(whole), **others, **whole_run).found;
    EXPECT_THAT(found, Not(Contains("loss of step 3 on rank 0")));
    EXPECT_THAT(found, Contains("loss of step 4 on rank 0"));
  }
}

// The matrix compares with several orders of sums, which are not the same.
TEST(ReferenceTest, OneDevicesBitsDependOnTheGroups) {
  for (const std::string& model : ReproducibleModels()) {
    MatrixCell cell;
    cell.model = model;
    std::vector<const CellRun*> runs;
    for (const int groups : {3, 4, 12}) {
      cell.gradient_groups = groups;
      const auto run = ReferenceRun(cell);
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_THAT(Confusions(ReferenceCell(cell), **run), IsEmpty());
      EXPECT_THAT(Idleness(**run), IsEmpty());
      EXPECT_EQ((*run)->front().losses.size(), 10u);
      for (const CellRun* other : runs) {
        EXPECT_THAT(CompareRuns(ReferenceCell(cell), **run, *other).found,
                    Not(IsEmpty()));
      }
      runs.push_back(*run);
    }
  }
}

// Nor is what is rounded to bf16.
TEST(ReferenceTest, OneDevicesBitsDependOnTheDtype) {
  for (const std::string& model : ReproducibleModels()) {
    MatrixCell wide, low;
    wide.model = low.model = model;
    low.dtype = "bf16";
    const auto run = ReferenceRun(wide);
    ASSERT_TRUE(run.ok()) << run.status();
    const auto other = ReferenceRun(low);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_THAT(CompareRuns(ReferenceCell(wide), **other, **run).found,
                Contains("loss of step 0 on rank 0"));
  }
}

// Nor are sums over parts of microbatches.
TEST(ReferenceTest, OneDevicesBitsDependOnTheParts) {
  MatrixCell cell;
  cell.model = "mlp_dropout";
  std::vector<const CellRun*> runs;
  for (const int parts : {1, 2, 3}) {
    cell.parts = parts;
    const auto run = ReferenceRun(cell);
    ASSERT_TRUE(run.ok()) << run.status();
    for (const CellRun* other : runs) {
      EXPECT_THAT(CompareRuns(ReferenceCell(cell), **run, *other).found,
                  Not(IsEmpty()));
    }
    runs.push_back(*run);
  }
}

}  // namespace
}  // namespace tandem
