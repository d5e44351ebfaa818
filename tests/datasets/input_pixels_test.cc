#include "datasets/input_pixels.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>
#include <vector>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::input_pixels_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor Pixels(const at::Tensor& input,
                  const std::vector<PixelStatistics>& pixels) {
  const auto image = InputPixels(input, pixels);
  EXPECT_TRUE(image.ok()) << image.status();
  return image.value_or(at::Tensor());
}

// Every byte, as data sets normalize it.
TEST(InputPixelsTest, AreTheBytesThatInputsWereMadeOf) {
  const std::vector<std::vector<PixelStatistics>> all = {
      {{0.1307f, 0.3081f}},
      {{0.2860f, 0.3530f}},
      {{0.485f, 0.229f}, {0.456f, 0.224f}, {0.406f, 0.225f}},
      {{0.5071f, 0.2673f}, {0.4865f, 0.2564f}, {0.4409f, 0.2762f}},
      {{0, 1 / 255.0f}}};
  for (const std::vector<PixelStatistics>& pixels : all) {
    const auto channels = static_cast<int64_t>(pixels.size());
    std::vector<float> values;
    std::vector<uint8_t> bytes;
    for (const PixelStatistics& of : pixels) {
      for (int byte = 0; byte < 256; ++byte) {
        values.push_back((static_cast<float>(byte) / 255.0f - of.mean) /
                         of.std);
        bytes.push_back(static_cast<uint8_t>(byte));
      }
    }
    EXPECT_TRUE(
        at::equal(Pixels(at::tensor(values).view({channels, 16, 16}), pixels),
                  at::tensor(bytes).view({channels, 16, 16})))
        << pixels.front().mean;
  }
}

TEST(InputPixelsTest, WithoutAChannelAreGrey) {
  EXPECT_TRUE(
      at::equal(Pixels(at::tensor({0.0f, 0.2f, 1.0f}).view({1, 3}), {{0, 1}}),
                at::tensor({0, 51, 255}, at::kByte).view({1, 1, 3})));
}

TEST(InputPixelsTest, OneStatisticIsOfAllChannels) {
  EXPECT_TRUE(at::equal(Pixels(at::full({3, 1, 1}, 0.375f), {{0.1f, 0.8f}}),
                        at::full({3, 1, 1}, 102, at::kByte)));
}

TEST(InputPixelsTest, StayWithinABytesRange) {
  const at::Tensor values =
      at::tensor({-1.0f, 1.1f, kNan, kInfinity, -kInfinity}).view({1, 5});
  EXPECT_TRUE(
      at::equal(Pixels(values, {{0, 1}}),
                at::tensor({0, 255, 0, 255, 0}, at::kByte).view({1, 1, 5})));
}

TEST(InputPixelsTest, OfAnUnknownScaleSpanIt) {
  EXPECT_TRUE(
      at::equal(Pixels(at::tensor({-3.0f, 1.0f, 7.0f, -0.5f}).view({1, 2, 2}),
                       /*pixels=*/{}),
                at::tensor({0, 102, 255, 64}, at::kByte).view({1, 2, 2})));
  EXPECT_TRUE(at::equal(Pixels(at::full({1, 2, 2}, 7.0f), {}),
                        at::zeros({1, 2, 2}, at::kByte)));
}

TEST(InputPixelsTest, OtherTensorsAreNoImages) {
  const std::vector<PixelStatistics> one = {{0, 1}};
  for (const auto& [input, says] :
       {std::pair(at::Tensor(), "no tensor"),
        std::pair(at::zeros({4}), "F32 [4] on cpu"),
        std::pair(at::zeros({2, 3, 3}), "F32 [2, 3, 3]"),
        std::pair(at::zeros({1, 0, 3}), "F32 [1, 0, 3]"),
        std::pair(at::zeros({1, 1, 3, 3}), "F32 [1, 1, 3, 3]"),
        std::pair(at::zeros({3, 3}, at::kLong), "I64 [3, 3]")}) {
    EXPECT_THAT(InputPixels(input, one).status(),
                InvalidArgument(says, "[1 or 3, height, width]"));
  }
  EXPECT_THAT(InputPixels(at::zeros({3, 2, 2}), {{0, 1}, {0, 1}}).status(),
              InvalidArgument("statistics of 2 channels were given for 3"));
}

}  // namespace
}  // namespace tandem::input_pixels_test
