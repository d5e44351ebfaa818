#include "parallel/parameter_server/served_layout.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/classification_loss.h"
#include "parallel/parameter_server/strategies.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::served_layout_test {
namespace {

// Tensors of awkward sizes and dtypes, one in channels-last order.
std::vector<at::Tensor> Tensors() {
  std::vector<at::Tensor> tensors;
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {0}, {}, {3, 5}, {2, 3, 4, 5}, {17}, {1, 1}, {0, 4}}) {
    const at::Tensor tensor = at::empty(sizes, at::kFloat);
    tensor.copy_(at::arange(tensor.numel()).view(sizes));
    tensors.push_back(tensor);
  }
  tensors[3] = tensors[3].contiguous(at::MemoryFormat::ChannelsLast);
  tensors.push_back(at::arange(11, at::kDouble));
  tensors.push_back(at::arange(13, at::kLong));
  return tensors;
}

std::vector<ServedTensor> Served(const std::vector<at::Tensor>& tensors) {
  std::vector<ServedTensor> served;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ServedTensor each;
    each.info = MakeTensorInfo("t" + std::to_string(i), tensors[i]);
    each.strides = tensors[i].strides().vec();
    each.group = static_cast<int64_t>(i % 2);
    served.push_back(each);
  }
  return served;
}

// One tensor that has two names, and two copies on the devices of two stages.
TEST(ServedLayoutTest, ATiedWeightIsInTheGroupOfAnyOfItsNames) {
  static constexpr char kFirst[] = "transformer.wte.weight";
  const LayerSpecs specs = LabSpecs("gpt_tiny_tied");
  for (const int stages : {1, 2}) {
    const auto replica = MeshStrategy::Create(
        specs, CrossEntropy,
        LabOptions(LabPipeline(stages), static_cast<int64_t>(specs.size())),
        nullptr);
    ASSERT_TRUE(replica.ok()) << replica.status();
    for (const std::string name : {kFirst, "lm_head.weight"}) {
      const ReplicaTensors tensors = MakeReplicaTensors(
          **replica, [&](const std::string& each) -> int64_t {
            return each == name ? 1 : 0;
          });
      EXPECT_EQ(tensors.copies.size(), stages == 2 ? 1u : 0u);
      for (const auto& [parameter, group] : tensors.layout.Groups()) {
        EXPECT_EQ(group, parameter == kFirst ? 1 : 0)
            << parameter << " by " << name << ", stages " << stages;
      }
    }
  }
}

TEST(ServedLayoutTest, EveryElementIsInOneSlice) {
  const std::vector<at::Tensor> tensors = Tensors();
  const std::vector<ServedTensor> served = Served(tensors);
  for (int servers = 1; servers <= 7; ++servers) {
    const std::vector<Slice> slices = CutIntoSlices(served, servers);
    ASSERT_EQ(slices.size(), static_cast<size_t>(servers));
    std::vector<int64_t> next(tensors.size(), 0);
    std::vector<int> pieces(tensors.size(), 0);
    for (const Slice& slice : slices) {
      EXPECT_EQ(slice.bytes % 64, 0);
      for (const Piece& piece : slice.pieces) {
        EXPECT_EQ(piece.offset % 64, 0);
        EXPECT_EQ(piece.begin, next[piece.tensor]);
        next[piece.tensor] += piece.length;
        ++pieces[piece.tensor];
        EXPECT_LE(piece.offset +
                      piece.length * static_cast<int64_t>(
                                         tensors[piece.tensor].element_size()),
                  slice.bytes);
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(next[i], tensors[i].numel()) << i << " of " << servers;
      EXPECT_GE(pieces[i], 1) << i << " of " << servers;
    }
  }
}

TEST(ServedLayoutTest, SlicesDifferByOneBlockAtMost) {
  ServedTensor tensor;
  tensor.info = {"w", at::kFloat, {1000}};
  tensor.strides = {1};
  for (int servers = 1; servers <= 7; ++servers) {
    int64_t least = INT64_MAX, most = 0;
    for (const Slice& slice : CutIntoSlices({tensor}, servers)) {
      least = std::min(least, slice.bytes);
      most = std::max(most, slice.bytes);
    }
    EXPECT_LE(most - least, 64);
  }
}

TEST(ServedLayoutTest, WhatIsPackedIsUnpacked) {
  const std::vector<at::Tensor> tensors = Tensors();
  for (int servers : {1, 2, 3, 5}) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& each : tensors) {
      copies.push_back(at::zeros_like(each));
    }
    for (const Slice& slice : CutIntoSlices(Served(tensors), servers)) {
      const at::Tensor bytes = at::zeros({slice.bytes}, at::kByte);
      Pack(tensors, slice, bytes);
      Unpack(bytes, slice, copies);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(copies[i].equal(tensors[i])) << i << " of " << servers;
    }
  }
}

TEST(ServedLayoutTest, ADescriptionIsUnderstood) {
  ServedLayout layout;
  layout.trained = Served(Tensors());
  layout.kept = Served({at::zeros({4}), at::zeros({2, 2})});
  layout.frozen = 1;
  layout.aliases = {{"head.weight", 2}, {"other.weight", 2}};
  const auto again = ServedLayout::Decode(layout.Encode());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->Encode(), layout.Encode());
  EXPECT_EQ(again->trained.size(), layout.trained.size());
  EXPECT_EQ(again->trained[3].strides, layout.trained[3].strides);
  EXPECT_EQ(again->trained[1].group, 1);
  EXPECT_EQ(again->frozen, 1u);
  EXPECT_EQ(again->aliases, layout.aliases);
  EXPECT_FALSE(ServedLayout::Decode("trained\tonly a name").ok());
}

}  // namespace
}  // namespace tandem::served_layout_test
