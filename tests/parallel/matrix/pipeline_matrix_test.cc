// Every two values of two settings of the pipeline together, against the model
// in one piece; the full product is pipeline_matrix_main's.

#include "tests/parallel/matrix/pipeline_matrix.h"

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
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

namespace tandem {
namespace {

std::vector<Combination> Sensible() {
  return AllCombinations(
      SizesOf(MatrixSettings()),
      [](const Combination& each) { return WhyNot(CellOf(each)).empty(); });
}

TEST(PipelineMatrixTest, IsTransparentForEveryPairOfSettings) {
  const std::vector<Combination> all = Sensible();
  const std::vector<Combination> cover = PairwiseCover(all);
  EXPECT_EQ(CountPairs(cover), CountPairs(all));
  int bits = 0;
  for (const Combination& each : cover) {
    const MatrixCell cell = CellOf(each);
    const auto result = RunCell(cell);
    EXPECT_TRUE(result.ok()) << ToString(cell) << ": " << result.status();
    if (!result.ok()) continue;
    std::cout << ToString(cell) << ": difference " << result->difference << " "
              << result->where << "\n";
    EXPECT_LE(result->difference, ToleranceOf(cell))
        << ToString(cell) << " in " << result->where;
    EXPECT_TRUE(result->moved) << ToString(cell);
    if (result->difference == 0) ++bits;
  }
  std::cout << cover.size() << " cells, of " << all.size()
            << " that make sense, cover " << CountPairs(cover)
            << " pairs of settings; " << bits << " have the same bits\n";
  EXPECT_EQ(all.size(), 14184u);
}

TEST(PipelineMatrixTest, WhatMakesNoSenseIsRefusedByName) {
  std::map<std::string, int> refusals;
  for (const Combination& each :
       AllCombinations(SizesOf(MatrixSettings()),
                       [](const Combination&) { return true; })) {
    const std::string why = WhyNot(CellOf(each));
    if (!why.empty()) ++refusals[why];
  }
  for (const auto& [why, count] : refusals) {
    std::cout << count << " cells: " << why << "\n";
  }
  EXPECT_EQ(refusals.size(), 4u);
  // The program's own words.
  const auto text = [](const auto& status) {
    return std::string(status.status().message());
  };
  EXPECT_THAT(text(MakeSchedule("zb_v", {3, 1, 4})),
              testing::HasSubstr("zb_v"));
  EXPECT_THAT(text(MakeSchedule("interleaved_1f1b", {2, 2, 3})),
              testing::HasSubstr("multiple"));
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
              testing::HasSubstr("is for 2 devices, but there are 1: 1 ranks "
                                 "of 1"));
  options.devices = {c10::Device(c10::kCPU), c10::Device(c10::kCPU)};
  options.cuts = {1, 2};
  EXPECT_THAT(text(MeshStrategy::Create(specs, CrossEntropy, options, nullptr)),
              testing::HasSubstr("2 cuts make 3 stages, but schedule 1f1b has "
                                 "2"));
}

}  // namespace
}  // namespace tandem
