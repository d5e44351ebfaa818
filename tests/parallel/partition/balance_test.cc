#include "parallel/partition/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/partition/layer_profile.h"

namespace tandem::balance_test {
namespace {

using testing::ElementsAre;

std::vector<LayerCost> Times(const std::vector<double>& times) {
  std::vector<LayerCost> layers;
  for (double time : times) layers.push_back({time / 3, time * 2 / 3, 0, 0, 0});
  return layers;
}

// A device with one part, of which so many microbatches are alive.
BalanceDevice Keeps(int part, int alive) {
  return {{part}, {{{alive, alive}}}};
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
  options.devices = {Keeps(0, 1), Keeps(1, 2)};
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
  options.devices = {Keeps(0, 2), Keeps(1, 1)};
  EXPECT_EQ(CutsByTime(layers, 2, options).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(CutsByTime(layers, 2, options).status(), Says("layer 0"));
  options.device_bytes = 50;
  EXPECT_THAT(*CutsByTime(layers, 2, options), ElementsAre(1));
}

// State and the largest layer's, wherever in a part that stands.
TEST(CutsByTime, AnEvaluationFitsIntoTheDevice) {
  BalanceOptions options;
  for (int64_t large = 0; large < 7; ++large) {
    std::vector<LayerCost> layers = Times({1, 1, 1, 1, 1, 1, 1});
    for (LayerCost& each : layers) {
      each.state_bytes = 1;
      each.activation_bytes = 2;
      each.evaluation_bytes = 30;
    }
    layers[static_cast<size_t>(large)].evaluation_bytes = 100;
    options.device_bytes = 107;
    EXPECT_TRUE(CutsByTime(layers, 1, options).ok()) << large;
    options.device_bytes = 106;
    EXPECT_EQ(CutsByTime(layers, 1, options).status().code(),
              absl::StatusCode::kResourceExhausted)
        << large;
    options.device_bytes = 101;  // it is alone in its part
    const bool at_an_end = large == 0 || large == 6;
    EXPECT_EQ(CutsByTime(layers, 2, options).ok(), at_an_end) << large;
    EXPECT_TRUE(CutsByTime(layers, 3, options).ok()) << large;
  }
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

// The V: parts d and 2 devices - 1 - d on device d.
std::vector<BalanceDevice> V(int devices) {
  std::vector<BalanceDevice> all;
  for (int d = 0; d < devices; ++d) {
    all.push_back({{d, 2 * devices - 1 - d}, {{{1, 1}, {1, 1}}}});
  }
  return all;
}

double SlowestDevice(const std::vector<double>& parts,
                     const BalanceOptions& options) {
  double slowest = 0;
  for (const BalanceDevice& device : options.devices) {
    double time = 0;
    for (int part : device.parts) time += parts[static_cast<size_t>(part)];
    slowest = std::max(slowest, time);
  }
  return slowest;
}

// The last layer is as slow as all others. By parts, device 0 would have it
// and a third of the rest.
TEST(CutsByTime, ADevicesPartsCountTogether) {
  BalanceOptions options;
  options.devices = V(2);
  const auto layers = Times({1, 1, 1, 1, 1, 1, 1, 1, 1, 8});
  EXPECT_THAT(*CutsByTime(layers, 4), ElementsAre(3, 6, 9));
  const Cuts cuts = *CutsByTime(layers, 4, options);
  EXPECT_THAT(cuts, ElementsAre(1, 5, 9));
  EXPECT_DOUBLE_EQ(SlowestDevice(PartTimes(layers, cuts, options), options), 9);
}

// From one part of a device to its next one.
TEST(CutsByTime, NeighboursOnOneDeviceSendNothing) {
  BalanceOptions options;
  options.devices = V(2);
  options.seconds_per_message = 1;
  EXPECT_THAT(PartTimes(Times({1, 1, 1, 1}), {1, 2, 3}, options),
              ElementsAre(2, 2, 2, 2));
  options.devices.clear();
  EXPECT_THAT(PartTimes(Times({1, 1, 1, 1}), {1, 2, 3}, options),
              ElementsAre(2, 3, 3, 2));
}

TEST(CutsByTime, ADevicesPartsShareItsMemory) {
  std::vector<LayerCost> layers = Times({1, 1, 1, 1});
  const int64_t state[] = {70, 40, 50, 20};
  for (size_t i = 0; i < 4; ++i) layers[i].state_bytes = state[i];
  BalanceOptions options;
  options.devices = V(2);
  options.device_bytes = 90;  // 70 + 20 and 40 + 50
  EXPECT_THAT(*CutsByTime(layers, 4, options), ElementsAre(1, 2, 3));
  options.device_bytes = 88;
  EXPECT_EQ(CutsByTime(layers, 4, options).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(CutsByTime(layers, 4, options).status(),
              Says("4 bytes have no place"));
  // Not at the same moment: 70 + 20, and 1 of the other's.
  for (LayerCost& each : layers) each.activation_bytes = 1;
  options.device_bytes = 91;
  options.devices[0].moments =
      options.devices[1].moments = {{{0, 1}, {0, 0}}, {{0, 0}, {0, 1}}};
  EXPECT_THAT(*CutsByTime(layers, 4, options), ElementsAre(1, 2, 3));
}

// The cuts are the best of all where they can all be tried; else near a bound
// that no cut can pass.
TEST(CutsByTime, IsGoodWhereDevicesHaveSeveralParts) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> time(1, 10);
  for (const size_t count : {9, 14, 60}) {
    std::vector<double> times;
    double all = 0;
    for (size_t i = 0; i < count; ++i) all += times.emplace_back(time(random));
    BalanceOptions options;
    options.devices = V(4);
    const auto layers = Times(times);
    const Cuts cuts = *CutsByTime(layers, 8, options);
    const double found =
        SlowestDevice(PartTimes(layers, cuts, options), options);
    const Cuts by_part = *CutsByTime(layers, 8);
    EXPECT_LE(found,
              SlowestDevice(PartTimes(layers, by_part, options), options));
    if (count == 60) {
      EXPECT_LT(found, all / 4 * 1.05);
    }
    double best = all;  // by another way: any cut, drawn at random
    for (int i = 0; i < 3000; ++i) {
      std::vector<int64_t> places(count - 1);
      std::iota(places.begin(), places.end(), 1);
      std::shuffle(places.begin(), places.end(), random);
      Cuts any(places.begin(), places.begin() + 7);
      std::sort(any.begin(), any.end());
      best = std::min(best,
                      SlowestDevice(PartTimes(layers, any, options), options));
    }
    EXPECT_LE(found, best) << count;
  }
}

TEST(CutsByTime, RefusesWhatMakesNoSense) {
  EXPECT_THAT(CutsByTime(Times({1, 2}), 3).status(),
              Says("2 layers cannot be cut into 3 parts"));
  EXPECT_THAT(CutsByTime(Times({1, -2}), 2).status(), Says("negative"));
  BalanceOptions options;
  options.devices = {Keeps(0, 1)};
  EXPECT_THAT(CutsByTime(Times({1, 2}), 2, options).status(),
              Says("each of 2 parts once"));
  options.devices = {Keeps(0, 1), Keeps(1, 1)};
  options.devices[1].moments = {{{1, 1}, {1, 1}}};
  EXPECT_FALSE(CutsByTime(Times({1, 2}), 2, options).ok());
}

TEST(CutsByType, CountsTheLayersOfThatType) {
  const std::vector<std::string> types = {"Embedding", "Block", "Block",
                                          "LayerNorm", "Block", "Linear"};
  EXPECT_THAT(*CutsByType(types, "^Block$", 3), ElementsAre(2, 4));
  EXPECT_THAT(CutsByType(types, "Conv", 2).status(),
              Says("matches 0 layers: too few for 2 parts"));
  EXPECT_THAT(CutsByType(types, "(", 2).status(),
              Says("no regular expression"));
}

class CopyCostTest : public DeviceTypeTest {};

TEST_P(CopyCostTest, MoreBytesTakeLonger) {
  const std::vector<c10::Device> devices = Devices(2);
  for (const c10::Device& to : devices) {
    const auto cost = MeasureCopy(devices.front(), to);
    ASSERT_TRUE(cost.ok()) << cost.status();
    EXPECT_GT(cost->seconds_per_byte, 0) << to;  // of 1000 times as many
    EXPECT_GE(cost->seconds_per_message, 0) << to;
  }
}

TANDEM_ON_DEVICE_TYPES(CopyCostTest);

}  // namespace
}  // namespace tandem::balance_test
