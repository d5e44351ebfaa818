#include "parallel/reproducible/gradient_halves.h"

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tandem::gradient_halves_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

at::Tensor Part(double value) { return at::full({2}, value); }

// (microbatch, value) of all that are whole.
std::vector<std::pair<int, double>> Wholes(GradientHalves& halves) {
  std::vector<std::pair<int, double>> all;
  while (const auto whole = halves.Next()) {
    all.emplace_back(whole->microbatch, whole->gradient[1].item<double>());
  }
  return all;
}

TEST(GradientHalvesTest, WhatComesAtOnceGoesAtOnce) {
  GradientHalves halves;
  const at::Tensor part = Part(3);
  halves.Add(5, part, /*awaits=*/false);
  const auto whole = halves.Next();
  ASSERT_TRUE(whole.has_value());
  EXPECT_TRUE(whole->gradient.is_alias_of(part));  // no copy
  EXPECT_TRUE(halves.empty());
  EXPECT_FALSE(halves.Next().has_value());
}

TEST(GradientHalvesTest, TheFirstPartWaitsForTheSecond) {
  GradientHalves halves;
  at::Tensor place = Part(3);
  halves.Add(0, place, /*awaits=*/true);
  EXPECT_TRUE(Wholes(halves).empty());
  place.fill_(4);  // the next microbatch's, in the same place
  halves.Add(1, place, /*awaits=*/true);
  EXPECT_TRUE(Wholes(halves).empty());
  place.fill_(10);
  halves.Add(0, place, /*awaits=*/false);
  EXPECT_THAT(Wholes(halves), ElementsAre(Pair(0, 13)));
  place.fill_(20);
  halves.Add(1, place, /*awaits=*/false);
  EXPECT_THAT(Wholes(halves), ElementsAre(Pair(1, 24)));
  EXPECT_TRUE(halves.empty());
}

TEST(GradientHalvesTest, OrderIsThatOfTheFirstParts) {
  GradientHalves halves;
  at::Tensor place = Part(1);
  halves.Add(3, at::Tensor(), /*awaits=*/true);  // no first part
  halves.Add(2, place, /*awaits=*/false);
  place.fill_(0);
  EXPECT_TRUE(Wholes(halves).empty());
  halves.Add(3, Part(7), /*awaits=*/false);
  EXPECT_THAT(Wholes(halves), ElementsAre(Pair(3, 7), Pair(2, 1)));
}

}  // namespace
}  // namespace tandem::gradient_halves_test
