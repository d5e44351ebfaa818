#include "parallel/channel/message_layout.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::message_layout_test {
namespace {

using testing::HasSubstr;

at::Tensor ChannelsLast() {
  return at::arange(48)
      .view({2, 3, 2, 4})
      .contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(MessageLayoutTest, GoesThroughNumbersAndBack) {
  const auto layout =
      LayoutOf({at::zeros({2, 3}), ChannelsLast(), at::zeros({}, at::kDouble)});
  ASSERT_TRUE(layout.ok()) << layout.status();
  const at::Tensor numbers = Encode(*layout);
  EXPECT_EQ(numbers.numel(), EncodedSize());
  const MessageLayout decoded = Decode(numbers);
  ASSERT_EQ(decoded.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(decoded[i].dtype, (*layout)[i].dtype);
    EXPECT_EQ(decoded[i].sizes, (*layout)[i].sizes);
    EXPECT_EQ(decoded[i].strides, (*layout)[i].strides);
  }
  EXPECT_EQ(ToString(decoded), "Float [2, 3], Long [2, 3, 2, 4], Double []");
}

TEST(MessageLayoutTest, MemoryOfAFormTakesTheValuesInTheirOrder) {
  const at::Tensor tensor = ChannelsLast();
  const auto layout = LayoutOf({tensor});
  ASSERT_TRUE(layout.ok()) << layout.status();
  const at::Tensor copy = NewTensor((*layout)[0], c10::kCPU);
  FlatView(copy).copy_(FlatView(tensor));
  EXPECT_TRUE(copy.equal(tensor));
  EXPECT_EQ(copy.strides(), tensor.strides());
}

TEST(MessageLayoutTest, WhatIsNotDenseIsLaidOutAnew) {
  const auto layout = LayoutOf({at::zeros({4, 6}).slice(1, 0, 6, 2)});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ((*layout)[0].strides, std::vector<int64_t>({3, 1}));
}

TEST(MessageLayoutTest, FitsWhatHasTheSameSizesAndDtype) {
  const auto layout = LayoutOf({at::zeros({2, 3})});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE((*layout)[0].Fits(at::zeros({3, 2}).t()));
  EXPECT_FALSE((*layout)[0].Fits(at::zeros({3, 2})));
  EXPECT_FALSE((*layout)[0].Fits(at::zeros({2, 3}, at::kDouble)));
}

TEST(MessageLayoutTest, SaysWhatTakesAGradient) {
  const auto layout = LayoutOf({at::zeros({1}).requires_grad_(), at::zeros({1}),
                                at::zeros({1}, at::kLong)});
  ASSERT_TRUE(layout.ok()) << layout.status();
  const MessageLayout decoded = Decode(Encode(*layout));
  EXPECT_TRUE(decoded[0].takes_gradient);
  EXPECT_FALSE(decoded[1].takes_gradient);
  EXPECT_FALSE(decoded[2].takes_gradient);
  EXPECT_EQ(ToString(decoded), "Float [1] with gradient, Float [1], Long [1]");
  // More gradients than are needed may come, but not fewer.
  EXPECT_TRUE(decoded[0].Fits(at::zeros({1})));
  EXPECT_FALSE(decoded[1].Fits(at::zeros({1}).requires_grad_()));
}

TEST(MessageLayoutTest, SaysWhatCannotCross) {
  const auto said = [](const std::vector<at::Tensor>& message) {
    return std::string(LayoutOf(message).status().message());
  };
  EXPECT_THAT(said(std::vector<at::Tensor>(64, at::zeros({1}))),
              HasSubstr("64 tensors cross a cut between ranks, but 63 at most "
                        "can"));
  EXPECT_THAT(said({at::Tensor()}), HasSubstr("not an undefined one"));
  EXPECT_THAT(said({at::zeros(std::vector<int64_t>(13, 1))}),
              HasSubstr("at most 12 dimensions"));
}

}  // namespace
}  // namespace tandem::message_layout_test
