#include "parallel/balance/cut.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::cut_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::string> kNames = {"conv1",  "bn1",  "relu",
                                         "layer1", "pool", "fc"};

TEST(ParseCutsTest, TakesNamesAndIndices) {
  EXPECT_THAT(*ParseCuts("relu", kNames, 2), ElementsAre(2));
  EXPECT_THAT(*ParseCuts("1, layer1,5", kNames, 4), ElementsAre(1, 3, 5));
  EXPECT_THAT(*ParseCuts("1,2,3,4,5", kNames, 6), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(*ParseCuts("", kNames, 1), IsEmpty());
}

TEST(ParseCutsTest, ANameGoesBeforeAnIndex) {
  EXPECT_THAT(*ParseCuts("1", {"0", "x", "1"}, 2), ElementsAre(2));
}

TEST(ParseCutsTest, AnUnknownLayerIsNamedWithTheNearestOne) {
  EXPECT_THAT(ParseCuts("layr1", kNames, 2).status(),
              InvalidArgument("no layer \"layr1\"", "did you mean layer1?",
                              "6 layers, conv1 (0) to fc (5)"));
  EXPECT_THAT(ParseCuts("transformer.h.1", kNames, 2).status(),
              AllOf(InvalidArgument(""), Not(Says("did you mean"))));
  for (const char* number : {"6", "-1", "99999999999999999999"}) {
    EXPECT_THAT(ParseCuts(number, kNames, 2).status(),
                InvalidArgument(std::string("no layer \"") + number));
  }
}

TEST(ParseCutsTest, OrderAndEmptyPartsAreErrors) {
  EXPECT_THAT(ParseCuts("pool,bn1", kNames, 3).status(),
              InvalidArgument("bn1 (1)", "order of the model"));
  EXPECT_THAT(ParseCuts("pool,4", kNames, 3).status(),
              InvalidArgument("would have no layer"));
  EXPECT_THAT(ParseCuts("conv1", kNames, 2).status(),
              InvalidArgument("layer conv1 (0)"));
  EXPECT_THAT(ParseCuts("relu,,fc", kNames, 4).status(),
              InvalidArgument("is missing"));
}

TEST(ParseCutsTest, TheNumberOfCutsIsThatOfThePartsLessOne) {
  EXPECT_THAT(
      ParseCuts("relu", kNames, 3).status(),
      InvalidArgument(
          "cuts at 'relu': this names 1 layer, but 3 parts have 2 cuts"));
  EXPECT_THAT(ParseCuts("", kNames, 2).status(),
              InvalidArgument("names 0 layers, but 2 parts have 1 cut"));
  EXPECT_THAT(
      ParseCuts("relu", kNames, 7).status(),
      InvalidArgument("7 parts need as many layers, but the model has 6"));
  EXPECT_THAT(ParseCuts("relu", kNames, 0).status(),
              InvalidArgument("at least 1 part"));
}

TEST(ParseCutsTest, ANameThatSeveralLayersHaveIsAnError) {
  EXPECT_THAT(ParseCuts("relu", {"fc", "relu", "fc2", "relu"}, 2).status(),
              InvalidArgument("several layers are named relu"));
}

TEST(UniformCutsTest, SizesDifferByOneAtMost) {
  EXPECT_THAT(*UniformCuts(7, 3), ElementsAre(3, 5));
  EXPECT_THAT(*UniformCuts(13, 7), ElementsAre(2, 4, 6, 8, 10, 12));
  EXPECT_THAT(*UniformCuts(5, 5), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*UniformCuts(5, 1), IsEmpty());
  EXPECT_THAT(UniformCuts(0, 1).status(), InvalidArgument(""));
  EXPECT_THAT(UniformCuts(2, 3).status(), InvalidArgument(""));
  EXPECT_THAT(UniformCuts(2, 0).status(), InvalidArgument(""));
}

TEST(CutsByParametersTest, LayersWithoutParametersStayWithTheOneBefore) {
  EXPECT_THAT(*CutsByParameters({110, 0, 55}, 2), ElementsAre(2));
  EXPECT_THAT(*CutsByParameters({0, 10, 0, 10, 0}, 2), ElementsAre(3));
  EXPECT_THAT(*CutsByParameters({0, 0, 0}, 3), ElementsAre(1, 2));
  EXPECT_THAT(*CutsByParameters({1, 1, 1, 1, 4}, 2), ElementsAre(4));
  EXPECT_THAT(*CutsByParameters({9}, 1), IsEmpty());
  EXPECT_THAT(CutsByParameters({}, 1).status(), InvalidArgument(""));
  EXPECT_THAT(CutsByParameters({3, 4}, 3).status(), InvalidArgument(""));
}

int64_t Largest(const std::vector<int64_t>& sizes, const Cuts& cuts) {
  int64_t largest = 0;
  for (const LayerRange& part :
       LayerRanges(cuts, static_cast<int64_t>(sizes.size()))) {
    largest = std::max(largest,
                       std::accumulate(sizes.begin() + part.begin,
                                       sizes.begin() + part.end, int64_t{0}));
  }
  return largest;
}

// Over all ways to cut `sizes`, from `begin` on.
int64_t LeastLargest(const std::vector<int64_t>& sizes, size_t begin,
                     int64_t parts) {
  int64_t sum = 0;
  if (parts == 1) {
    return std::accumulate(sizes.begin() + begin, sizes.end(), int64_t{0});
  }
  int64_t least = INT64_MAX;
  for (size_t end = begin + 1; end + parts - 1 <= sizes.size(); ++end) {
    sum += sizes[end - 1];
    least = std::min(least, std::max(sum, LeastLargest(sizes, end, parts - 1)));
  }
  return least;
}

TEST(CutsByParametersTest, NoOtherCutsMakeTheLargestPartSmaller) {
  uint32_t state = 1;
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> sizes(1 + round % 11);
    for (int64_t& size : sizes) {
      state = state * 1664525 + 1013904223;
      size = state % 3 == 0 ? 0 : static_cast<int64_t>(state >> 20) << 30;
    }
    for (int64_t parts = 1; parts <= static_cast<int64_t>(sizes.size());
         ++parts) {
      const Cuts cuts = *CutsByParameters(sizes, parts);
      EXPECT_EQ(static_cast<int64_t>(cuts.size()), parts - 1);
      EXPECT_TRUE(CheckCuts(cuts, static_cast<int64_t>(sizes.size())).ok());
      EXPECT_EQ(Largest(sizes, cuts), LeastLargest(sizes, 0, parts));
    }
  }
}

TEST(CheckCutsTest, CutsRiseAndLieBetweenTheLayers) {
  EXPECT_TRUE(CheckCuts({}, 1).ok());
  EXPECT_TRUE(CheckCuts({1, 2}, 3).ok());
  for (const Cuts& wrong :
       {Cuts{0}, Cuts{3}, Cuts{-1}, Cuts{2, 1}, Cuts{1, 1}, Cuts{1, 2, 3}}) {
    EXPECT_FALSE(CheckCuts(wrong, 3).ok());
  }
  EXPECT_FALSE(CheckCuts({}, 0).ok());
}

TEST(PartsOfTest, PartsGoFromCutToCut) {
  const std::vector<LayerRange> parts = LayerRanges({2, 3}, 7);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].begin, 0);
  EXPECT_EQ(parts[0].end, 2);
  EXPECT_EQ(parts[1].end, 3);
  EXPECT_EQ(parts[2].begin, 3);
  EXPECT_EQ(parts[2].end, 7);
}

}  // namespace
}  // namespace tandem::cut_test
