// Choices between numbers of microbatches whose steps are known in closed form.

#include "parallel/partition/microbatch_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "parallel/schedule/schedules.h"

namespace tandem::microbatch_choice_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What a layer takes for a microbatch, whatever its size, and for each of its
// samples; in milliseconds, a third of it forward.
struct Cost {
  double fixed = 0;
  double each = 0;
};

std::vector<Cost> Alike(int layers, const Cost& cost) {
  return std::vector<Cost>(static_cast<size_t>(layers), cost);
}

struct Lab {
  std::vector<Cost> layers;
  int64_t samples = 64;  // of a step
  int stages = 4;
  std::vector<int> numbers;
  std::string balance = "profile";
  PipelineDevices devices = {};
  std::vector<int> too_many = {};  // numbers that cannot be measured
};

ModelProfile ProfileOf(const Lab& lab, int microbatches) {
  const auto size = static_cast<double>(lab.samples) / microbatches;
  ModelProfile profile;
  for (const Cost& each : lab.layers) {
    LayerProfile& layer = profile.layers.emplace_back();
    const double third = (each.fixed + each.each * size) / 3e3;
    layer.forward = layer.backward_input = layer.backward_weight = third;
    layer.activation_bytes = static_cast<int64_t>(size);
  }
  return profile;
}

absl::StatusOr<MicrobatchChoice> Choose(const Lab& lab) {
  ModelOutline model;
  for (size_t i = 0; i < lab.layers.size(); ++i) {
    model.names.push_back(absl::StrCat("layer", i));
    model.types.push_back("Layer");
    model.parameters.push_back(1);
  }
  std::vector<Schedule> schedules;
  for (const int each : lab.numbers) {
    schedules.push_back(*OneFOneB({lab.stages, 1, each}));
  }
  return ChooseMicrobatches(
      *ParseBalance(lab.balance), model, schedules, lab.devices,
      [&](size_t i) -> absl::StatusOr<ModelProfile> {
        for (const int each : lab.too_many) {
          if (each == lab.numbers[i]) {
            return absl::ResourceExhaustedError("out of memory");
          }
        }
        return ProfileOf(lab, lab.numbers[i]);
      });
}

// With equal stages a step takes (M + S - 1) (a / M + b), which is shortest for
// M = sqrt(a (S - 1) / b), here 8.
TEST(MicrobatchChoiceTest, TheOptimumOfEqualStagesIsFound) {
  const Lab lab = {Alike(4, {3, 1}), 64, 4, {4, 8, 16, 32, 64}};
  const auto choice = Choose(lab);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->index, 1u);
  for (const TriedMicrobatches& each : choice->tried) {
    const double m = each.microbatches;
    EXPECT_NEAR(each.step.value(), 1e-3 * (m + 3) * (64 / m + 3), 1e-9) << m;
  }
  EXPECT_EQ(DescribeChoice(*choice),
            "8 of 4, 8, 16, 32, 64 (predicted 121.0 ms a step; 4: 133.0, "
            "16: 133.0, 32: 175.0, 64: 268.0)");
  EXPECT_THAT(choice->cuts, ElementsAre(1, 2, 3));
}

TEST(MicrobatchChoiceTest,
     WithoutOverheadTheMostAreTakenAndWithNothingElseFew) {
  const std::vector<int> numbers = {4, 8, 16};
  const auto most = Choose({Alike(4, {0, 1}), 64, 4, numbers});
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(most->index, 2u);
  const auto few = Choose({Alike(4, {1, 0}), 64, 4, numbers});
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(few->index, 0u);
  EXPECT_EQ(DescribeChoice(*few),
            "4 of 4, 8, 16 (predicted 7.000 ms a step; 8: 11.0, 16: 19.0)");
}

TEST(MicrobatchChoiceTest, OfEqualStepsTheFewerMicrobatchesAreTaken) {
  const auto choice = Choose({Alike(4, {0, 0}), 64, 4, {4, 8}});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->index, 0u);
}

// The first layer takes 8 ms, the others 1 ms a sample.
TEST(MicrobatchChoiceTest, CutsAreThoseForTheMicrobatchsSize) {
  Lab lab = {{{8, 0}, {0, 1}, {0, 1}, {0, 1}, {0, 1}}, 32, 2, {32}};
  auto choice = Choose(lab);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->cuts, ElementsAre(1));  // 8 and 4 ms
  EXPECT_EQ(DescribeChoice(*choice), "32 of 32 (predicted 257.3 ms a step)");
  lab.numbers = {2, 32};
  choice = Choose(lab);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->index, 0u);
  EXPECT_THAT(choice->cuts, ElementsAre(3));  // 40 and 32 ms
  EXPECT_NEAR(choice->model.profile->layers[1].forward, 16e-3 / 3, 1e-9);
}

// A device keeps four microbatches, with 16 bytes of activations each or 8.
TEST(MicrobatchChoiceTest, WhatDoesNotFitIsLeftOut) {
  for (const char* balance : {"profile", "uniform"}) {
    Lab lab = {Alike(4, {9, 1}), 64, 4, {4, 8}, balance};
    auto choice = Choose(lab);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->index, 0u);
    lab.devices.device_bytes = 4 * 8;
    choice = Choose(lab);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->index, 1u);
    EXPECT_THAT(DescribeChoice(*choice), HasSubstr("; 4: does not fit)"));
    lab.devices.device_bytes = 8;
    EXPECT_TRUE(absl::IsResourceExhausted(Choose(lab).status())) << balance;
  }
}

TEST(MicrobatchChoiceTest, WhatCannotBeMeasuredForWantOfMemoryIsLeftOut) {
  Lab lab = {Alike(4, {9, 1}), 64, 4, {4, 8}};
  lab.too_many = {4};
  const auto choice = Choose(lab);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->index, 1u);
  lab.too_many = {4, 8};
  EXPECT_THAT(Choose(lab).status(), Says("out of memory"));
}

TEST(MicrobatchChoiceTest, AnyOtherErrorEndsIt) {
  EXPECT_THAT(Choose({Alike(4, {9, 1}), 64, 4, {4, 8}, "layer9"}).status(),
              InvalidArgument("layer9"));
}

}  // namespace
}  // namespace tandem::microbatch_choice_test
