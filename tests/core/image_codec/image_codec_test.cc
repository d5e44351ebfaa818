#include "core/image_codec/image_codec.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"

namespace tandem {
namespace {

// A file of images.json (make_images.py), and Pillow's pixels of it.
struct Golden {
  std::string name;
  int64_t width = 0;
  int64_t height = 0;
  std::string file;
  std::string rgb;
};

std::string FromBase64(const std::string& text) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(text, &bytes));
  return bytes;
}

const std::vector<Golden>& Goldens() {
  static const auto* const goldens = [] {
    std::ifstream file("tests/core/image_codec/images.json");
    auto* const read = new std::vector<Golden>;
    for (const auto& each : nlohmann::json::parse(file)) {
      read->push_back({each["name"], each["width"], each["height"],
                       FromBase64(each["file"]), FromBase64(each["rgb"])});
    }
    return read;
  }();
  return *goldens;
}

const std::string& GoldenFile(const std::string& name) {
  for (const Golden& each : Goldens()) {
    if (each.name == name) return each.file;
  }
  ADD_FAILURE() << "images.json has no " << name;
  return Goldens().front().file;
}

std::string PixelsOf(const at::Tensor& image) {
  const at::Tensor pixels = image.permute({1, 2, 0}).contiguous();
  return std::string(
      reinterpret_cast<const char*>(pixels.const_data_ptr<uint8_t>()),
      static_cast<size_t>(pixels.numel()));
}

TEST(DecodeImageTest, HasPillowsPixelsOfEveryKindOfFile) {
  ASSERT_EQ(Goldens().size(), 46u);
  for (const Golden& golden : Goldens()) {
    const auto image = DecodeImage(golden.file);
    ASSERT_TRUE(image.ok()) << golden.name << ": " << image.status();
    EXPECT_EQ(image->scalar_type(), at::kByte);
    ASSERT_EQ(image->sizes(), at::IntArrayRef({3, golden.height, golden.width}))
        << golden.name;
    EXPECT_TRUE(PixelsOf(*image) == golden.rgb) << golden.name;
  }
}

TEST(DecodeImageTest, HasNoImageOfAFileThatEndsEarly) {
  for (const Golden& golden : Goldens()) {
    for (size_t size = 0; size < golden.file.size(); ++size) {
      const auto image = DecodeImage(golden.file.substr(0, size));
      ASSERT_FALSE(image.ok()) << golden.name << ", " << size << " bytes";
    }
  }
  const std::string& png = GoldenFile("png_rgb_8");
  EXPECT_THAT(DecodeImage(png.substr(0, png.size() / 2)).status(),
              StatusIs(absl::StatusCode::kDataLoss, "truncated", "PNG"));
  const std::string& jpeg = GoldenFile("jpeg_420");
  EXPECT_THAT(DecodeImage(jpeg.substr(0, jpeg.size() - 1)).status(),
              StatusIs(absl::StatusCode::kDataLoss, "truncated", "JPEG"));
}

TEST(DecodeImageTest, SurvivesAnyChangedByte) {
  for (const Golden& golden : Goldens()) {
    for (size_t at = 0; at < golden.file.size(); ++at) {
      for (const char change : {'\x01', '\x80', '\xff'}) {
        std::string file = golden.file;
        file[at] = static_cast<char>(file[at] ^ change);
        const auto image = DecodeImage(file, /*most_pixels=*/1 << 16);
        if (image.ok()) {
          ASSERT_EQ(image->size(0), 3) << golden.name;
        } else {
          ASSERT_FALSE(image.status().message().empty());
        }
      }
    }
  }
}

TEST(DecodeImageTest, RefusesDamagedPngs) {
  std::string file = GoldenFile("png_rgb_8");
  file[29] ^= 1;  // the header's checksum
  EXPECT_THAT(DecodeImage(file).status(),
              StatusIs(absl::StatusCode::kDataLoss, "damaged", "CRC"));
}

TEST(DecodeImageTest, RefusesMorePixelsThanTheLimitBeforeItTakesMemory) {
  const std::string& jpeg = GoldenFile("jpeg_420");  // 35 x 29
  EXPECT_TRUE(DecodeImage(jpeg, 35 * 29).ok());
  EXPECT_THAT(DecodeImage(jpeg, 35 * 29 - 1).status(),
              InvalidArgument("35 x 29", "1014"));

  // Terabytes, if anybody believed them.
  std::string bomb = jpeg;
  const size_t frame = bomb.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  bomb.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_THAT(DecodeImage(bomb).status(), InvalidArgument("65500 x 65500"));
  const std::string png =
      std::string(
          "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff"
          "\xff\x08\x02\0\0\0\x9b\xab\x9c\x31",
          33) +
      GoldenFile("png_rgb_8").substr(33);
  EXPECT_THAT(DecodeImage(png).status(),
              InvalidArgument("2147483647 x 2147483647", "89478485"));
}

// The first scan once more, as often as that: each would be a pass over all of
// an image's memory.
TEST(DecodeImageTest, RefusesJpegsOfVeryManyScans) {
  const std::string& file = GoldenFile("jpeg_444_progressive");
  const size_t begin = file.find("\xff\xda");
  size_t end = begin + 2;
  while (file[end] != '\xff' || file[end + 1] == '\0') ++end;
  std::string scans;
  for (int i = 0; i < 101; ++i) scans += file.substr(begin, end - begin);
  const std::string many = file.substr(0, begin) + scans + file.substr(begin);
  EXPECT_THAT(DecodeImage(many).status(),
              StatusIs(absl::StatusCode::kDataLoss, "100 scans"));
}

TEST(DecodeImageTest, NamesKindsOfJpegThatItDoesNotRead) {
  const auto changed = [](size_t behind_frame, char byte) {
    std::string file = GoldenFile("jpeg_420");
    file[file.find("\xff\xc0") + behind_frame] = byte;
    return DecodeImage(file).status();
  };
  EXPECT_THAT(changed(4, 12), Says("precision 12"));
  EXPECT_THAT(changed(1, '\xc3'), Says("SOF type 0xc3"));  // lossless
  const std::string two_components(
      "\xff\xd8\xff\xc0\0\x0e\x08\0\x08\0\x08\2\1\x11\0\2\x11\0\xff\xda\0\x0a"
      "\2\1\0\2\0\0\x3f\0",
      32);
  EXPECT_THAT(DecodeImage(two_components).status(),
              InvalidArgument("2 components"));
}

TEST(DecodeImageTest, NamesWhatIsNoPngOrJpeg) {
  const auto refused = [](const std::string& bytes) {
    return DecodeImage(bytes).status();
  };
  EXPECT_THAT(refused(""), InvalidArgument("empty"));
  EXPECT_THAT(refused("GIF89a"), InvalidArgument("GIF"));
  EXPECT_THAT(refused("RIFF    WEBP"), InvalidArgument("WebP"));
  EXPECT_THAT(refused("<html>"), InvalidArgument("HTML"));
  EXPECT_THAT(refused("version https://git-lfs.github.com/spec/v1"),
              InvalidArgument("Git LFS"));
  EXPECT_THAT(refused("a text"), InvalidArgument("neither PNG nor JPEG"));
}

TEST(DecodeImageTest, ServesSeveralThreadsOfWhichSomeFail) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread, &wrong] {
      for (const Golden& golden : Goldens()) {
        const auto image = DecodeImage(golden.file);
        if (!image.ok() || PixelsOf(*image) != golden.rgb) ++wrong[thread];
        const std::string half =
            golden.file.substr(0, golden.file.size() / (2 + thread));
        if (DecodeImage(half).ok()) ++wrong[thread];
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(DecodeImageFileTest, NamesTheFile) {
  const std::string path = absl::StrCat(testing::TempDir(), "/cat.png");
  std::filesystem::remove(path);
  EXPECT_THAT(DecodeImageFile(path).status(),
              StatusIs(absl::StatusCode::kNotFound, path));
  std::ofstream(path, std::ios::binary) << "no image";
  EXPECT_THAT(DecodeImageFile(path).status(), InvalidArgument(path, "neither"));
  std::ofstream(path, std::ios::binary) << GoldenFile("png_rgb_8");
  const auto image = DecodeImageFile(path);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->sizes(), at::IntArrayRef({3, 5, 7}));
  EXPECT_THAT(DecodeImageFile(path, 34).status(), InvalidArgument(path, "34"));
  EXPECT_THAT(DecodeImageFile(testing::TempDir()).status(),
              InvalidArgument("regular file"));
}

TEST(EncodePngTest, IsDecodedToTheSamePixels) {
  const at::Tensor rgb =
      at::arange(3 * 5 * 7).mul(37).remainder(256).to(at::kByte).view(
          {3, 5, 7});
  const auto png = EncodePng(rgb);
  ASSERT_TRUE(png.ok()) << png.status();
  EXPECT_TRUE(absl::StartsWith(*png, "\x89PNG"));
  EXPECT_TRUE(at::equal(*DecodeImage(*png), rgb));
  EXPECT_EQ(*png, *EncodePng(rgb.permute({1, 2, 0}), ImageLayout::kHwc));

  const at::Tensor grey = rgb.slice(0, 1, 2);
  EXPECT_TRUE(
      at::equal(*DecodeImage(*EncodePng(grey)), grey.expand({3, 5, 7})));
  const at::Tensor alpha = at::cat({rgb, grey});
  const auto with_alpha = EncodePng(alpha);
  EXPECT_TRUE(at::equal(*DecodeImage(*with_alpha), rgb));
  EXPECT_EQ((*with_alpha)[25], 6);  // RGBA, by the format's header
}

TEST(EncodePngTest, RefusesWhatIsNoImage) {
  const at::TensorOptions bytes(at::kByte);
  EXPECT_THAT(EncodePng(at::Tensor()).status(), InvalidArgument("no tensor"));
  EXPECT_THAT(EncodePng(at::zeros({3, 5, 7})).status(),
              InvalidArgument("F32 [3, 5, 7]", "uint8"));
  EXPECT_THAT(EncodePng(at::zeros({5, 7}, bytes)).status(),
              InvalidArgument("U8 [5, 7]"));
  EXPECT_THAT(EncodePng(at::zeros({2, 5, 7}, bytes)).status(),
              InvalidArgument("[2, 5, 7]", "[1, 3 or 4, height, width]"));
  EXPECT_THAT(
      EncodePng(at::zeros({3, 5, 7}, bytes), ImageLayout::kHwc).status(),
      InvalidArgument("[height, width, 1, 3 or 4]"));
  EXPECT_THAT(EncodePng(at::zeros({3, 0, 7}, bytes)).status(),
              InvalidArgument("[3, 0, 7]"));
}

}  // namespace
}  // namespace tandem
