#include "core/model/layer_links.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/model/layer_flow.h"
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

bool IsAligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 == 0;
}

// [3, 4], columns one after the other in memory.
at::Tensor Transposed(const at::Tensor& x) { return (x * 2).transpose(0, 1); }

TEST(LayerBorderTest, AGradientComesBackInTheTensorsStrides) {
  const at::Tensor x = at::ones({4, 3}).requires_grad_();
  const at::Tensor before = Transposed(x);
  const at::Tensor behind = AcrossBorder(before);
  EXPECT_EQ(behind.const_data_ptr(), before.const_data_ptr());
  EXPECT_EQ(behind.strides(), before.strides());
  at::Tensor came;
  before.register_hook(
      [&came](const at::Tensor& gradient) { came = gradient; });
  const at::Tensor weights = at::arange(12, at::kFloat).view({3, 4});
  (behind * weights).sum().backward();
  ASSERT_TRUE(came.defined());
  EXPECT_EQ(came.strides(), before.strides());
  EXPECT_TRUE(came.equal(weights));
  EXPECT_TRUE(x.grad().equal(weights.t() * 2));
}

// The gradients of two leaves are so, each of which is summed on its own.
TEST(LayerBorderTest, WhatComesForOneTensorIsSummedByBorder) {
  const auto number = [](float value) { return at::full({1}, value); };
  const auto gradient = [&](bool has_borders) {
    const at::Tensor x = at::ones({1}).requires_grad_();
    const at::Tensor y = x * 1;
    const at::Tensor skip = has_borders ? AcrossBorder(y) : y;
    const at::Tensor values = has_borders ? AcrossBorder(y) : y;
    const at::Tensor sum = values * number(1e8F) + values * number(-1e8F);
    (sum + skip * number(1)).sum().backward();
    return x.grad().item<float>();
  };
  EXPECT_EQ(gradient(/*has_borders=*/true), 1);
  EXPECT_EQ(gradient(/*has_borders=*/false), 0);
}

TEST(LayerBorderTest, WhatHasGapsOrOverlapsIsCopied) {
  const at::Tensor x = at::ones({4, 3}).requires_grad_();
  const at::Tensor row = AcrossBorder((x * 2).select(1, 0));
  EXPECT_TRUE(row.is_contiguous());
  row.sum().backward();
  EXPECT_TRUE(x.grad().select(1, 0).equal(at::full({4}, 2.0F)));
  EXPECT_EQ(x.grad().select(1, 1).count_nonzero().item<int64_t>(), 0);
  EXPECT_TRUE(Dense(at::ones({1}).expand({5})).is_contiguous());
}

TEST(LayerBorderTest, MemoryBeginsOnALine) {
  const at::Tensor x = at::arange(33, at::kFloat);
  const at::Tensor part = x.narrow(0, 1, 32);
  EXPECT_FALSE(IsAligned(part));
  EXPECT_TRUE(IsAligned(Settled(part)));
  EXPECT_TRUE(Settled(part).equal(part));
  EXPECT_TRUE(Settled(x).is_same(x));
}

TEST(LayerBorderTest, WhatIsBehindMayBeWrittenTo) {
  const at::Tensor x = at::ones({4, 3}).requires_grad_();
  at::Tensor behind = AcrossBorder(Transposed(x));
  behind.mul_(3).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({4, 3}, 6.0F)));
}

TEST(LayerBorderTest, WithoutAGradientThereIsNoNode) {
  const at::Tensor tokens = at::arange(4);
  EXPECT_TRUE(AcrossBorder(tokens).is_same(tokens));
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::ones({4}).requires_grad_();
  EXPECT_TRUE(AcrossBorder(x).is_same(x));
}

TEST(LayerBorderTest, ALayersOwnSkipsCrossWithItsValues) {
  const at::Tensor x = at::ones({4}).requires_grad_();
  Layer layer;
  layer.links.stash = {"left"};
  LayerFlow flow = {x * 1, {{"left", x * 2}, {"passing", x * 3}}};
  const LayerFlow before = flow;
  CrossBorder(layer, flow);
  EXPECT_FALSE(flow.values.is_same(before.values));
  EXPECT_FALSE(flow.skips.at("left").is_same(before.skips.at("left")));
  EXPECT_TRUE(flow.skips.at("passing").is_same(before.skips.at("passing")));
}

}  // namespace
}  // namespace tandem::layer_links_test
