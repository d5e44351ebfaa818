#include "parallel/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<LayerCost> Times(const std::vector<double>& times) {
  std::vector<LayerCost> layers;
  for (double time : times) layers.push_back({time / 3, time * 2 / 3, 0, 0, 0});
  return layers;
}

std::string ErrorOf(const absl::StatusOr<Cuts>& cuts) {
  return std::string(cuts.status().message());
}

TEST(CutsByTime, MakesTheSlowestPartFast) {
  EXPECT_THAT(*CutsByTime(Times({1, 1, 1, 9, 1, 1}), 2), ElementsAre(3));
  EXPECT_THAT(*CutsByTime(Times({5, 1, 1, 1, 5}), 3), ElementsAre(1, 4));
  EXPECT_THAT(*CutsByTime(Times({1, 2, 3}), 1), ElementsAre());
  EXPECT_THAT(*CutsByTime(Times({1, 2, 3}), 3), ElementsAre(1, 2));
}

TEST(CutsByTime, CutsWhereLittleIsSent) {
  std::vector<LayerCost> layers = Times({3, 3, 3, 3});
  layers[1].output_bytes = 100;
  BalanceOptions options;
  EXPECT_THAT(*CutsByTime(layers, 2, options), ElementsAre(2));
  options.seconds_per_byte = 0.1;
  EXPECT_THAT(*CutsByTime(layers, 2, options),
              testing::AnyOf(ElementsAre(1), ElementsAre(3)));
}

TEST(CutsByTime, CountsTheInputThatAPartKeeps) {
  std::vector<LayerCost> layers = Times({1, 1, 1, 1});
  BalanceOptions options;
  options.device_bytes = 10;
  options.activations_alive = {1, 2};
  layers[2].input_bytes = 5;
  EXPECT_THAT(*CutsByTime(layers, 2, options), ElementsAre(2));
  layers[2].input_bytes = 6;
  EXPECT_THAT(*CutsByTime(layers, 2, options),
              testing::AnyOf(ElementsAre(1), ElementsAre(3)));
}

TEST(CutsByTime, KeepsToTheDevicesMemory) {
  std::vector<LayerCost> layers = Times({1, 1, 1, 1});
  for (LayerCost& each : layers) {
    each.state_bytes = 10;
    each.activation_bytes = 5;
  }
  layers[0].state_bytes = 40;
  BalanceOptions options;
  options.device_bytes = 45;
  EXPECT_THAT(*CutsByTime(layers, 2, options), ElementsAre(1));
  // 1F1B's first stage holds two microbatches' activations.
  options.activations_alive = {2, 1};
  EXPECT_EQ(CutsByTime(layers, 2, options).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(ErrorOf(CutsByTime(layers, 2, options)), HasSubstr("layer 0"));
  options.device_bytes = 50;
  EXPECT_THAT(*CutsByTime(layers, 2, options), ElementsAre(1));
}

// All ways to cut, one by one.
double BestByTrying(const std::vector<LayerCost>& layers, int64_t parts,
                    const BalanceOptions& options, Cuts cuts = {}) {
  if (static_cast<int64_t>(cuts.size()) == parts - 1) {
    const std::vector<double> times = PartTimes(layers, cuts, options);
    return *std::max_element(times.begin(), times.end());
  }
  double best = 1e300;
  const int64_t first = cuts.empty() ? 1 : cuts.back() + 1;
  for (int64_t next = first; next < static_cast<int64_t>(layers.size());
       ++next) {
    Cuts longer = cuts;
    longer.push_back(next);
    best = std::min(best, BestByTrying(layers, parts, options, longer));
  }
  return best;
}

TEST(CutsByTime, IsTheBestOfAll) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> time(0, 10);
  int cells = 0;
  for (size_t count : {1, 2, 3, 7, 11}) {
    for (int64_t parts = 1; parts <= std::min<int64_t>(count, 5); ++parts) {
      std::vector<LayerCost> layers;
      for (size_t i = 0; i < count; ++i) {
        layers.push_back({time(random), time(random), 0, 0,
                          static_cast<int64_t>(time(random))});
      }
      const BalanceOptions options = {0.1, 0.05, 0, {}};
      const auto cuts = CutsByTime(layers, parts, options);
      ASSERT_TRUE(cuts.ok()) << cuts.status();
      const std::vector<double> times = PartTimes(layers, *cuts, options);
      EXPECT_DOUBLE_EQ(*std::max_element(times.begin(), times.end()),
                       BestByTrying(layers, parts, options));
      ++cells;
    }
  }
  EXPECT_EQ(cells, 1 + 2 + 3 + 5 + 5);
}

TEST(CutsByTime, RefusesWhatMakesNoSense) {
  EXPECT_THAT(ErrorOf(CutsByTime(Times({1, 2}), 3)),
              HasSubstr("2 layers cannot be cut into 3 parts"));
  EXPECT_THAT(ErrorOf(CutsByTime(Times({1, -2}), 2)), HasSubstr("negative"));
  BalanceOptions options;
  options.activations_alive = {1};
  EXPECT_THAT(ErrorOf(CutsByTime(Times({1, 2}), 2, options)),
              HasSubstr("1 entries for 2 parts"));
}

TEST(CutsByType, CountsTheLayersOfThatType) {
  const std::vector<std::string> types = {"Embedding", "Block", "Block",
                                          "LayerNorm", "Block", "Linear"};
  EXPECT_THAT(*CutsByType(types, "^Block$", 3), ElementsAre(2, 4));
  EXPECT_THAT(ErrorOf(CutsByType(types, "Conv", 2)),
              HasSubstr("matches 0 layers: too few for 2 parts"));
  EXPECT_THAT(ErrorOf(CutsByType(types, "(", 2)),
              HasSubstr("no regular expression"));
}

}  // namespace
}  // namespace tandem
