// What becomes of an image, and what is drawn for it.

#include "datasets/images/image_transform.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::image_transform_test {
namespace {

// Inputs are the bytes themselves.
ImageOptions Plain(int64_t size, int64_t resize,
                   std::vector<std::string> augment = {}) {
  const double byte = 1.0 / 255;
  return {size, resize, std::move(augment), {0, 0, 0}, {byte, byte, byte}};
}

ImageTransform Transform(const ImageOptions& options, bool augment = true) {
  auto transform = ImageTransform::Create(options, ImageNetOptions(), augment);
  EXPECT_TRUE(transform.ok()) << transform.status();
  return *std::move(transform);
}

at::Tensor Applied(const ImageTransform& transform, const at::Tensor& image,
                   const SampleInEpoch& of = {}) {
  const at::Tensor input =
      at::empty({3, transform.size(), transform.size()}, at::kFloat);
  ExpectOk(transform.Apply(image, of, input.mutable_data_ptr<float>()));
  return input;
}

std::string FromBase64(const std::string& text) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(text, &bytes));
  return bytes;
}

// [3, height, width] of Pillow's pixels.
at::Tensor Image(std::string pixels, int64_t height, int64_t width) {
  return at::from_blob(pixels.data(), {height, width, 3}, at::kByte)
      .permute({2, 0, 1})
      .clone();
}

TEST(ImageTransformTest, ResizesAndCropsAsPillowDoes) {
  std::ifstream file("tests/datasets/images/resized.json");
  int cases = 0;
  for (const auto& each : nlohmann::json::parse(file)) {
    const int64_t size = each["size"];
    const at::Tensor image =
        Image(FromBase64(each["pixels"]), each["height"], each["width"]);
    const at::Tensor expected =
        Image(FromBase64(each["expected"]), size, size).to(at::kFloat);
    const at::Tensor input =
        Applied(Transform(Plain(size, each["resize"])), image);
    const at::Tensor apart = (input - expected).abs();
    // Pillow sums in whole numbers, and rounds once for each direction.
    EXPECT_LT(apart.max().item<float>(), 1.01) << each["width"];
    EXPECT_LT(apart.mean().item<float>(), 0.25) << each["width"];
    ++cases;
  }
  EXPECT_EQ(cases, 9);
}

TEST(ImageTransformTest, NormalizesInFp32) {
  ImageOptions options = Plain(1, 1);
  options.mean = {0.5, 0.25, 0};
  options.std = {0.5, 0.125, 2};
  const at::Tensor image = at::tensor({255, 0, 51}, at::kByte).view({3, 1, 1});
  EXPECT_EQ(Applied(Transform(options), image)[0].item<float>(), 1);
  EXPECT_EQ(Applied(Transform(options), image)[1].item<float>(), -2);
  EXPECT_EQ(Applied(Transform(options), image)[2].item<float>(),
            51.0f / 255.0f / 2.0f);
  const auto usual =
      ImageTransform::Create({1, 1, {}, {}, {}}, ImageNetOptions(), false);
  EXPECT_EQ(Applied(*usual, image)[0].item<float>(), (1.0f - 0.485f) / 0.229f);
}

TEST(ImageTransformTest, SizesFollowFromWhatIsUsual) {
  const auto sides = [](const ImageOptions& options,
                        const ImageOptions& usual) {
    return ImageTransform::Create(options, usual, false)->size();
  };
  EXPECT_EQ(sides({}, ImageNetOptions()), 224);
  EXPECT_EQ(sides({}, Cifar10Options()), 32);
  EXPECT_EQ(sides({112, 0, {}, {}, {}}, ImageNetOptions()), 112);
  // 8 of 8 x 256 / 224 = 9: of an image of 9 x 9 the first row and column are
  // left out (half a pixel, rounded to the even number).
  const at::Tensor image = at::arange(81).to(at::kByte).view({1, 9, 9});
  const at::Tensor input =
      Applied(Transform(Plain(8, 0)), image.expand({3, 9, 9}).contiguous());
  EXPECT_EQ(std::lround(input[0][0][0].item<float>()), 0);
  EXPECT_EQ(std::lround(input[0][7][7].item<float>()), 7 * 9 + 7);
}

// Each pixel is another one, 1 to 64.
at::Tensor Numbered() {
  return at::arange(1, 65).to(at::kByte).view({1, 8, 8}).expand({3, 8, 8});
}

TEST(ImageTransformTest, RandomCropTakesAnyWindowOfThePaddedImage) {
  const ImageTransform transform = Transform(Plain(8, 8, {"random_crop"}));
  const at::Tensor padded =
      at::constant_pad_nd(Numbered(), {4, 4, 4, 4}, 0).to(at::kFloat);
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int64_t sample = 0; sample < 1500; ++sample) {
    const at::Tensor input =
        Applied(transform, Numbered(), {7, 3, sample}).round();
    bool found = false;
    for (int64_t top = 0; top <= 8 && !found; ++top) {
      for (int64_t left = 0; left <= 8 && !found; ++left) {
        found = at::equal(
            input, padded.slice(1, top, top + 8).slice(2, left, left + 8));
        if (found) seen.insert({top, left});
      }
    }
    ASSERT_TRUE(found) << sample;
  }
  EXPECT_EQ(seen.size(), 81u);
}

TEST(ImageTransformTest, FlipsHalfOfTheImages) {
  const ImageTransform transform = Transform(Plain(8, 8, {"flip"}));
  const at::Tensor plain = Numbered().to(at::kFloat);
  int flipped = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const at::Tensor input =
        Applied(transform, Numbered(), {7, 0, sample}).round();
    if (at::equal(input, plain)) continue;
    ASSERT_TRUE(at::equal(input, plain.flip(2)));
    ++flipped;
  }
  EXPECT_NEAR(flipped, 500, 60);
}

// Red says which column of the image, green which row.
at::Tensor Ramps(int64_t height, int64_t width) {
  const at::Tensor columns =
      at::linspace(0, 255, width).expand({height, width});
  const at::Tensor rows =
      at::linspace(0, 255, height).unsqueeze(1).expand({height, width});
  return at::stack({columns, rows, rows}).to(at::kByte);
}

struct Part {
  double area = 0;
  double ratio = 0;
};

// What part of Ramps(height, width) an input of 16 x 16 shows, of 1.
Part PartOf(const at::Tensor& input, double height, double width) {
  const auto extent = [](const at::Tensor& ends, double pixels) {
    const double steps =
        std::abs(ends[1].item<float>() - ends[0].item<float>()) / 255 *
        (pixels - 1);
    return steps * 16 / 15;
  };
  const double down = extent(
      at::stack({input[1].select(0, 0).mean(), input[1].select(0, 15).mean()}),
      height);
  const double right = extent(
      at::stack({input[0].select(1, 0).mean(), input[0].select(1, 15).mean()}),
      width);
  return {down * right / height / width, right / down};
}

TEST(ImageTransformTest, RandomResizedCropHasTorchvisionsScalesAndRatios) {
  const ImageTransform transform =
      Transform(Plain(16, 16, {"random_resized_crop"}));
  const at::Tensor image = Ramps(200, 200);
  double sum = 0, least = 1, most = 0, narrowest = 9, widest = 0;
  constexpr int kSamples = 600;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const Part part =
        PartOf(Applied(transform, image, {1, 0, sample}), 200, 200);
    sum += part.area;
    least = std::min(least, part.area);
    most = std::max(most, part.area);
    narrowest = std::min(narrowest, part.ratio);
    widest = std::max(widest, part.ratio);
  }
  EXPECT_NEAR(least, 0.08, 0.03);
  EXPECT_NEAR(most, 1, 0.08);
  // Somewhat below (0.08 + 1) / 2, as large ones of other ratios do not fit.
  EXPECT_NEAR(sum / kSamples, 0.5, 0.05);
  EXPECT_NEAR(narrowest, 0.75, 0.06);
  EXPECT_NEAR(widest, 4.0 / 3, 0.08);
}

TEST(ImageTransformTest, RandomResizedCropOfANarrowImageIsItsMiddle) {
  const ImageTransform transform =
      Transform(Plain(4, 4, {"random_resized_crop"}));
  // A part of at least 0.08 of it would be 32 wide at least, and 3 x 4/3 = 4
  // at most.
  const at::Tensor image = Ramps(3, 1200);
  const at::Tensor input = Applied(transform, image);
  EXPECT_NEAR(input[0].min().item<float>(), 127.5, 2);
  EXPECT_NEAR(input[0].max().item<float>(), 127.5, 2);
  EXPECT_GT(input[1].max().item<float>(), 200);
}

TEST(ImageTransformTest, DrawsAreAFunctionOfSeedEpochAndSample) {
  const ImageTransform transform =
      Transform(Plain(16, 16, {"random_resized_crop", "flip"}));
  const at::Tensor image = Ramps(40, 50);
  const at::Tensor input = Applied(transform, image, {1, 2, 3});
  Applied(transform, image, {1, 2, 4});
  EXPECT_TRUE(at::equal(Applied(transform, image, {1, 2, 3}), input));
  for (const SampleInEpoch& other :
       {SampleInEpoch{2, 2, 3}, SampleInEpoch{1, 3, 3}, SampleInEpoch{1, 2, 4},
        SampleInEpoch{1, 3, 2}, SampleInEpoch{1, 2, 3 + (int64_t{1} << 32)}}) {
    EXPECT_FALSE(at::equal(Applied(transform, image, other), input));
  }
}

TEST(ImageTransformTest, TestImagesAreNotAugmented) {
  const ImageOptions augmented = Plain(16, 18, {"random_resized_crop", "flip"});
  const at::Tensor image = Ramps(40, 50);
  EXPECT_TRUE(at::equal(
      Applied(Transform(augmented, /*augment=*/false), image, {1, 2, 3}),
      Applied(Transform(Plain(16, 18)), image)));
}

TEST(ImageTransformTest, RefusesAnImageThatResizingMakesTooLarge) {
  const at::Tensor line = at::zeros({3, 1, 2000000}, at::kByte);
  const ImageTransform transform = Transform({});
  std::vector<float> input(3 * 224 * 224);
  EXPECT_THAT(transform.Apply(line, {}, input.data()),
              InvalidArgument("2000000 x 1", "256"));
  // Here a part is resized alone.
  ExpectOk(Transform(Plain(8, 8, {"random_resized_crop"}))
               .Apply(line, {}, input.data()));
}

TEST(ImageTransformTest, RefusesWhatMakesNoSense) {
  const auto refused = [](const ImageOptions& options) {
    return ImageTransform::Create(options, ImageNetOptions(), true).status();
  };
  EXPECT_THAT(refused({-1, 0, {}, {}, {}}), InvalidArgument("image_size=-1"));
  EXPECT_THAT(refused({0, 65537, {}, {}, {}}),
              InvalidArgument("image_resize=65537"));
  EXPECT_THAT(refused({9, 8, {}, {}, {}}),
              InvalidArgument("image_resize=8", "image_size=9"));
  EXPECT_THAT(refused({0, 223, {}, {}, {}}),
              InvalidArgument("image_resize=223", "224"));
  EXPECT_THAT(refused({0, 0, {"mixup"}, {}, {}}),
              InvalidArgument("augment=mixup", "random_resized_crop"));
  EXPECT_THAT(refused({0, 0, {"flip", "flip"}, {}, {}}),
              InvalidArgument("augment=flip,flip", "twice"));
  EXPECT_THAT(refused({0, 0, {"random_crop", "random_resized_crop"}, {}, {}}),
              InvalidArgument("both", "leave one out"));
  EXPECT_THAT(refused({0, 0, {}, {0.5}, {}}),
              InvalidArgument("image_mean=0.5", "three numbers"));
  EXPECT_THAT(refused({0, 0, {}, {}, {1, 0, 1}}),
              InvalidArgument("image_std=1,0,1", "above 0"));
  EXPECT_THAT(refused({0, 0, {}, {NAN, 0, 0}, {}}),
              InvalidArgument("image_mean=nan"));
}

}  // namespace
}  // namespace tandem::image_transform_test
