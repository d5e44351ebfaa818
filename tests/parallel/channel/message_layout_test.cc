#include "parallel/channel/message_layout.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tandem::message_layout_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

at::Tensor ChannelsLast() {
  return at::arange(48)
      .view({2, 3, 2, 4})
      .contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(MessageLayoutTest, GoesThroughNumbersAndBack) {
  const auto layout = MakeMessageLayout(
      {at::zeros({2, 3}), ChannelsLast(), at::zeros({}, at::kDouble)});
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
  const auto layout = MakeMessageLayout({tensor});
  ASSERT_TRUE(layout.ok()) << layout.status();
  const at::Tensor copy = NewTensor((*layout)[0], c10::kCPU);
  FlatView(copy).copy_(FlatView(tensor));
  EXPECT_TRUE(copy.equal(tensor));
  EXPECT_EQ(copy.strides(), tensor.strides());
}

TEST(MessageLayoutTest, WhatIsNotDenseIsLaidOutAnew) {
  const auto layout = MakeMessageLayout({at::zeros({4, 6}).slice(1, 0, 6, 2)});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ((*layout)[0].strides, std::vector<int64_t>({3, 1}));
}

TEST(MessageLayoutTest, FitsWhatHasTheSameSizesAndDtype) {
  const auto layout = MakeMessageLayout({at::zeros({2, 3})});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE((*layout)[0].Fits(at::zeros({3, 2}).t()));
  EXPECT_FALSE((*layout)[0].Fits(at::zeros({3, 2})));
  EXPECT_FALSE((*layout)[0].Fits(at::zeros({2, 3}, at::kDouble)));
}

TEST(MessageLayoutTest, SaysWhatTakesAGradient) {
  const auto layout =
      MakeMessageLayout({at::zeros({1}).requires_grad_(), at::zeros({1}),
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
    return std::string(MakeMessageLayout(message).status().message());
  };
  EXPECT_THAT(said(std::vector<at::Tensor>(64, at::zeros({1}))),
              HasSubstr("64 tensors cross a cut between ranks, but 63 at most "
                        "can"));
  EXPECT_THAT(said({at::Tensor()}), HasSubstr("not an undefined one"));
  EXPECT_THAT(said({at::zeros(std::vector<int64_t>(13, 1))}),
              HasSubstr("at most 12 dimensions"));
}

ChannelStep StepOf(std::vector<int64_t> rows, uint64_t identity = 0) {
  ChannelStep step;
  step.rows = std::move(rows);
  step.identity = identity;
  return step;
}

// What is said of the steps of ranks 4 and 5.
std::string Said(const ChannelStep& first, const ChannelStep& second) {
  const absl::Status status = CheckSameStep(
      DecodeStepForm(Encode(MakeStepForm(first))), 4, MakeStepForm(second), 5);
  return std::string(status.message());
}

TEST(StepFormTest, TheSameStepIsTheSame) {
  EXPECT_EQ(Said(StepOf({2, 2, 1}, 7), StepOf({2, 2, 1}, 7)), "");
  EXPECT_EQ(Said(StepOf({2}, 7), StepOf({2}, 0)), "");
  EXPECT_EQ(Said(StepOf({2}, 0), StepOf({2}, 7)), "");
}

TEST(StepFormTest, SaysWhatDiffers) {
  EXPECT_EQ(Said(StepOf({2, 2}), StepOf({2, 1})),
            "ranks 4 and 5 of one replica have batches of 4 and 3 samples: "
            "give them the same");
  EXPECT_EQ(Said(StepOf({2, 2}), StepOf({2, 1, 1})),
            "ranks 4 and 5 of one replica cut their batch of 4 samples into "
            "microbatches of 2, 2 and of 2, 1, 1: cut it alike");
  EXPECT_THAT(Said(StepOf({1, 2}), StepOf({2, 1})),
              HasSubstr("batch of 3 samples into microbatches of 1, 2 and of "
                        "2, 1: "));
  EXPECT_THAT(Said(StepOf({2}, 7), StepOf({2}, ~uint64_t{0})),
              StartsWith("ranks 4 and 5 of one replica have batches of other "
                         "samples"));
}

TEST(StepFormTest, SaysHowManyMoreThereAre) {
  const std::vector<int64_t> ones(20, 1);
  EXPECT_THAT(Said(StepOf(ones), StepOf({20})),
              HasSubstr("1, 1, 1 and 4 more and of 20: "));
}

}  // namespace
}  // namespace tandem::message_layout_test
