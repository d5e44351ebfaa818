#include "core/model/layer_links.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::layer_links_test {
namespace {

using Names = std::vector<std::string>;

LayerLinks Skips(Names stashes, Names takes) {
  return {std::move(stashes), std::move(takes), {}};
}

// Two skips, one within the other, and one that ends where another begins.
const std::vector<LayerLinks>& Example() {
  static const auto* layers = new std::vector<LayerLinks>{
      Skips({"wide"}, {}), Skips({"narrow"}, {}), LayerLinks(),
      Skips({"next"}, {"narrow"}), Skips({}, {"next", "wide"})};
  return *layers;
}

LayerLinks Reads(Names names) { return {{}, {}, {}, std::move(names)}; }

// A skip, and two further inputs: one that two layers read, one of the last.
const std::vector<LayerLinks>& ReadingExample() {
  static const auto* layers =
      new std::vector<LayerLinks>{LayerLinks(),
                                  Reads({"mask"}),
                                  Skips({"long"}, {}),
                                  Reads({"types", "mask"}),
                                  {{}, {"long"}, {}, {"types"}},
                                  LayerLinks()};
  return *layers;
}

// One that three layers take, and a name that is used again: by a layer that
// takes the one and leaves the other.
const std::vector<LayerLinks>& SharingExample() {
  static const auto* layers = new std::vector<LayerLinks>{
      Skips({"memory", "short"}, {}),        Skips({}, {"memory"}),
      Skips({"short"}, {"short", "memory"}), LayerLinks(),
      Skips({}, {"memory", "short"}),        LayerLinks()};
  return *layers;
}

std::string Error(const std::vector<LayerLinks>& layers) {
  return std::string(CheckSkips(layers).message());
}

TEST(LayerLinksTest, SkipsThatFitTogetherAreTaken) {
  EXPECT_TRUE(CheckSkips({}).ok());
  EXPECT_TRUE(CheckSkips({LayerLinks(), LayerLinks()}).ok());
  EXPECT_TRUE(CheckSkips(Example()).ok());
}

TEST(LayerLinksTest, SkipsThatDoNotAreNamed) {
  EXPECT_EQ(Error({Skips({}, {"a"})}),
            "skip connection 'a' of layer 0 is left by no layer before it");
  EXPECT_EQ(Error({Skips({"a"}, {"a"})}),
            "skip connection 'a' of layer 0 is left by no layer before it");
  EXPECT_EQ(Error({Skips({"a"}, {}), Skips({"a"}, {}), Skips({}, {"a"})}),
            "skip connection 'a' of layer 0 is taken by no layer before layer "
            "1 leaves another of that name");
  EXPECT_EQ(
      Error({Skips({"a"}, {}), Skips({}, {"a"}), Skips({"a"}, {})}),
      "skip connection 'a' of layer 2 is taken by no layer after it, nor by "
      "the loss");
  EXPECT_EQ(
      Error({LayerLinks(), Skips({"a"}, {})}),
      "skip connection 'a' of layer 1 is taken by no layer after it, nor by "
      "the loss");
}

TEST(LayerLinksTest, TheLossTakesAsALayerBehindTheLast) {
  const std::vector<LayerLinks> layers = {
      Skips({"a", "b"}, {}), Skips({}, {"a"}), Skips({"a"}, {}), LayerLinks()};
  EXPECT_TRUE(CheckSkips(layers, {"b", "a"}).ok());
  EXPECT_EQ(CheckSkips(layers, {"a"}).message(),
            "skip connection 'b' of layer 0 is taken by no layer after it, nor "
            "by the loss");
  EXPECT_EQ(CheckSkips(layers, {"a", "b", "c"}).message(),
            "the loss takes 'c', which no layer leaves; they leave 'a', 'b'");
  EXPECT_EQ(CheckSkips({LayerLinks()}, {"c"}).message(),
            "the loss takes 'c', which no layer leaves; they leave nothing");
  const Names takes = {"b", "a"};
  EXPECT_EQ(SkipsBefore(layers, 0, takes), Names());
  EXPECT_EQ(SkipsBefore(layers, 1, takes), Names({"a", "b"}));
  // The second of that name is not left yet.
  EXPECT_EQ(SkipsBefore(layers, 2, takes), Names({"b"}));
  EXPECT_EQ(SkipsBefore(layers, 4, takes), Names({"a", "b"}));
}

TEST(LayerLinksTest, SkipsOnTheirWayBeforeALayer) {
  EXPECT_EQ(SkipsBefore(Example(), 0), Names());
  EXPECT_EQ(SkipsBefore(Example(), 1), Names({"wide"}));
  EXPECT_EQ(SkipsBefore(Example(), 2), Names({"narrow", "wide"}));
  EXPECT_EQ(SkipsBefore(Example(), 3), Names({"narrow", "wide"}));
  EXPECT_EQ(SkipsBefore(Example(), 4), Names({"next", "wide"}));
  EXPECT_EQ(SkipsBefore(Example(), 5), Names());
}

TEST(LayerLinksTest, SkipsGoAsFarAsTheyAreTaken) {
  EXPECT_TRUE(CheckSkips(SharingExample()).ok());
  const auto before = [](size_t layer) {
    return SkipsBefore(SharingExample(), layer);
  };
  EXPECT_EQ(before(0), Names());
  for (size_t layer : {1, 2, 3, 4}) {
    EXPECT_EQ(before(layer), Names({"memory", "short"})) << layer;
  }
  EXPECT_EQ(before(5), Names());
}

TEST(LastPopsTest, OfEachLayer) {
  EXPECT_EQ(
      LastPops(SharingExample()),
      std::vector<Names>({{}, {}, {"short"}, {}, {"memory", "short"}, {}}));
  EXPECT_EQ(LastPops(Example()),
            std::vector<Names>({{}, {}, {}, {"narrow"}, {"next", "wide"}}));
}

TEST(LastPopsTest, WhatIsNeededBehindAPartOfThemIsNotTakenLast) {
  const std::vector<LayerLinks> part(SharingExample().begin() + 1,
                                     SharingExample().begin() + 3);
  EXPECT_EQ(LastPops(part, {"memory", "short"}),
            std::vector<Names>({{}, {"short"}}));
}

TEST(LayerLinksTest, FurtherInputsAreThereFromTheStart) {
  EXPECT_TRUE(CheckSkips(ReadingExample()).ok());
  EXPECT_EQ(FurtherInputs(ReadingExample()), Names({"mask", "types"}));
  EXPECT_EQ(FurtherInputs(Example()), Names());
  EXPECT_EQ(FurtherInputs({}), Names());
}

TEST(LayerLinksTest, FurtherInputsGoAsFarAsTheyAreRead) {
  const auto before = [](size_t layer) {
    return SkipsBefore(ReadingExample(), layer);
  };
  EXPECT_EQ(before(0), Names({"mask", "types"}));
  EXPECT_EQ(before(1), Names({"mask", "types"}));
  EXPECT_EQ(before(3), Names({"long", "mask", "types"}));
  EXPECT_EQ(before(4), Names({"long", "types"}));
  EXPECT_EQ(before(5), Names());
  EXPECT_EQ(before(6), Names());
}

TEST(LayerLinksTest, FurtherInputsAndSkipsDoNotMix) {
  EXPECT_EQ(Error({Reads({"a"}), Skips({"a"}, {}), Skips({}, {"a"})}),
            "skip connection 'a' of layer 1 has the name of a further input");
  EXPECT_EQ(Error({Skips({"a"}, {}), Skips({}, {"a"}), Reads({"a"})}),
            "skip connection 'a' of layer 0 has the name of a further input");
  // Taken, though it is for reading.
  EXPECT_EQ(Error({Reads({"a"}), Skips({}, {"a"})}),
            "skip connection 'a' of layer 1 is left by no layer before it");
}

}  // namespace
}  // namespace tandem::layer_links_test
