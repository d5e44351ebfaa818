#include "datasets/mnist.h"

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "datasets/input_pixels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/files.h"
#include "tests/datasets/numbers.h"

namespace tandem::mnist_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr PixelStatistics kPlain = {0.0f, 1.0f};

std::string MakeFolder(const std::string& name) {
  mkdir(absl::StrCat(::testing::TempDir(), "/", name).c_str(), 0700);
  return name + "/";
}

// `count` images, of which image i has pixels i, i + 1, ..., modulo 256.
std::string Images(int count) {
  std::string pixels;
  for (int i = 0; i < count; ++i) {
    for (int pixel = 0; pixel < 784; ++pixel) {
      pixels += static_cast<char>(i + pixel);
    }
  }
  return pixels;
}

std::string InTempDir(const std::string& folder) {
  return ::testing::TempDir() + "/" + folder;
}

TEST(MnistTest, GivesNormalisedImagesAndLabelsInTheOrderAskedFor) {
  const std::string folder = MakeFolder("normalised");
  WriteTestFile(folder + "train-images-idx3-ubyte",
                IdxBytes({3, 28, 28}, Images(3)));
  WriteTestFile(folder + "train-labels-idx1-ubyte.gz",
                Gzip(IdxBytes({3}, {7, 0, 9})));
  const auto dataset =
      OpenMnist(InTempDir(folder), Split::kTrain, {0.25f, 0.5f});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3);
  EXPECT_EQ((*dataset)->classes(), 10);
  EXPECT_THAT((*dataset)->input_shape(), ElementsAre(1, 28, 28));

  const absl::StatusOr<Batch> batch = (*dataset)->Get({2, 0});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->size, 2);
  EXPECT_EQ(batch->inputs.scalar_type(), at::kFloat);
  EXPECT_EQ(batch->targets.scalar_type(), at::kLong);
  EXPECT_THAT(batch->inputs.sizes().vec(), ElementsAre(2, 1, 28, 28));
  EXPECT_THAT(batch->targets.sizes().vec(), ElementsAre(2));
  const int64_t* targets = batch->targets.const_data_ptr<int64_t>();
  EXPECT_EQ(targets[0], 9);
  EXPECT_EQ(targets[1], 7);
  const float* inputs = batch->inputs.const_data_ptr<float>();
  for (int pixel = 0; pixel < 784; ++pixel) {
    const float first = static_cast<float>((2 + pixel) % 256);
    EXPECT_EQ(inputs[pixel], (first / 255.0f - 0.25f) / 0.5f);
    const float second = static_cast<float>(pixel % 256);
    EXPECT_EQ(inputs[784 + pixel], (second / 255.0f - 0.25f) / 0.5f);
  }
}

TEST(MnistTest, SaysHowPixelsBecameInputsAndWhatClassesAreCalled) {
  const std::string folder = MakeFolder("described");
  WriteTestFile(folder + "t10k-images-idx3-ubyte",
                IdxBytes({1, 28, 28}, Images(1)));
  WriteTestFile(folder + "t10k-labels-idx1-ubyte", IdxBytes({1}, {9}));
  const auto dataset = OpenMnist(InTempDir(folder), Split::kTest,
                                 kFashionMnistPixels, kFashionMnistClasses);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->ClassName(9), "Ankle boot");
  const auto image =
      InputPixels((*dataset)->Get({0})->inputs[0], (*dataset)->pixels());
  ASSERT_TRUE(image.ok()) << image.status();
  const uint8_t* bytes = image->const_data_ptr<uint8_t>();
  for (int pixel = 0; pixel < 784; ++pixel) {
    EXPECT_EQ(bytes[pixel], pixel % 256);
  }
  // Digits are called as they are numbered.
  EXPECT_EQ((*OpenMnist(InTempDir(folder), Split::kTest, kPlain))->ClassName(9),
            "");
}

TEST(MnistTest, ADigestTellsOtherFilesApart) {
  const auto digest = [](const std::string& images, const std::string& labels) {
    const std::string folder = MakeFolder("digest");
    WriteTestFile(folder + "train-images-idx3-ubyte",
                  IdxBytes({2, 28, 28}, images));
    WriteTestFile(folder + "train-labels-idx1-ubyte", IdxBytes({2}, labels));
    return (*OpenMnist(InTempDir(folder), Split::kTrain, kPlain))->digest();
  };
  const std::string first = digest(Images(2), {7, 9});
  EXPECT_EQ(first.size(), 8u);
  EXPECT_EQ(digest(Images(2), {7, 9}), first);
  EXPECT_NE(digest(Images(2), {7, 8}), first);
  std::string images = Images(2);
  images[1000] = 0;
  EXPECT_NE(digest(images, {7, 9}), first);
}

TEST(MnistTest, GivesThePartsThatAreWanted) {
  const std::string folder = MakeFolder("parts");
  WriteTestFile(folder + "train-images-idx3-ubyte",
                IdxBytes({2, 28, 28}, Images(2)));
  WriteTestFile(folder + "train-labels-idx1-ubyte", IdxBytes({2}, {7, 9}));
  const auto dataset = OpenMnist(InTempDir(folder), Split::kTrain, kPlain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const absl::StatusOr<Batch> images =
      (*dataset)->Get({1}, {/*inputs=*/true, /*targets=*/false});
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(images->inputs.const_data_ptr<float>()[1], 2 / 255.0f);
  EXPECT_FALSE(images->targets.defined());
  const absl::StatusOr<Batch> labels =
      (*dataset)->Get({1}, {/*inputs=*/false, /*targets=*/true});
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_EQ(labels->targets.const_data_ptr<int64_t>()[0], 9);
  EXPECT_FALSE(labels->inputs.defined());
  EXPECT_EQ(labels->size, 1);
}

TEST(MnistTest, AnIndexBeyondTheEndIsAnError) {
  const std::string folder = MakeFolder("short");
  WriteTestFile(folder + "t10k-images-idx3-ubyte",
                IdxBytes({1, 28, 28}, Images(1)));
  WriteTestFile(folder + "t10k-labels-idx1-ubyte", IdxBytes({1}, {4}));
  const auto dataset = OpenMnist(InTempDir(folder), Split::kTest, kPlain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->Get({})->size, 0);
  for (int64_t index : {-1, 1}) {
    const absl::Status status = (*dataset)->Get({0, index}).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange,
                                 absl::StrCat("sample ", index, " ")));
  }
}

// The error of a folder with these two training files.
std::string ErrorText(const std::string& images, const std::string& labels) {
  const std::string folder = MakeFolder("mismatched");
  WriteTestFile(folder + "train-images-idx3-ubyte", images);
  WriteTestFile(folder + "train-labels-idx1-ubyte", labels);
  return std::string(
      OpenMnist(InTempDir(folder), Split::kTrain, kPlain).status().message());
}

TEST(MnistTest, FilesThatDoNotMatchAreErrors) {
  const std::string images = IdxBytes({2, 28, 28}, Images(2));
  const std::string labels = IdxBytes({2}, {1, 2});
  EXPECT_THAT(ErrorText(images, IdxBytes({3}, {1, 2, 3})),
              AllOf(HasSubstr("train-images-idx3-ubyte has 2 images"),
                    HasSubstr("train-labels-idx1-ubyte has 3 labels")));
  EXPECT_THAT(ErrorText(images, IdxBytes({2}, {1, 10})),
              HasSubstr("label 10 of sample 1, expected 0 to 9"));
  EXPECT_THAT(ErrorText(IdxBytes({2, 14, 56}, Images(2)), labels),
              HasSubstr("images of 14 x 56 pixels, expected 28 x 28"));
  EXPECT_THAT(ErrorText(labels, images),
              HasSubstr("1 dimensions, expected 3: are images and labels"));
  EXPECT_THAT(ErrorText(images, labels.substr(0, 9)),
              HasSubstr("train-labels-idx1-ubyte: truncated"));
}

TEST(MnistTest, AFolderWithoutTheFilesIsAnError) {
  const absl::Status status =
      OpenMnist("/nowhere", Split::kTest, kPlain).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kNotFound, "t10k-images-idx3-ubyte.gz",
                       "'/nowhere'", "four IDX files"));
}

std::unique_ptr<Dataset> FashionMnist(Split split) {
  const absl::StatusOr<std::string> folder = BundledFashionMnist();
  EXPECT_TRUE(folder.ok()) << folder.status();
  auto dataset = OpenMnist(*folder, split, kFashionMnistPixels);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

TEST(FashionMnistTest, FirstLabelsAreTheKnownOnes) {
  const absl::StatusOr<Batch> train =
      FashionMnist(Split::kTrain)->Get(Range(10));
  const int64_t* labels = train->targets.const_data_ptr<int64_t>();
  EXPECT_THAT(std::vector<int64_t>(labels, labels + 10),
              ElementsAre(9, 0, 0, 3, 0, 2, 7, 2, 5, 5));
  EXPECT_EQ(kFashionMnistClasses[labels[0]], "Ankle boot");
  const absl::StatusOr<Batch> test = FashionMnist(Split::kTest)->Get(Range(10));
  labels = test->targets.const_data_ptr<int64_t>();
  EXPECT_THAT(std::vector<int64_t>(labels, labels + 10),
              ElementsAre(9, 2, 1, 1, 6, 1, 4, 6, 5, 7));
}

struct Sums {
  double value = 0;
  double square = 0;
  std::vector<int64_t> of_class = std::vector<int64_t>(10);
};

Sums BatchSums(const Batch& batch) {
  Sums sums;
  const float* inputs = batch.inputs.const_data_ptr<float>();
  for (int64_t i = 0; i < batch.size * 784; ++i) {
    sums.value += inputs[i];
    sums.square += static_cast<double>(inputs[i]) * inputs[i];
  }
  const int64_t* targets = batch.targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.size; ++i) ++sums.of_class[targets[i]];
  return sums;
}

TEST(FashionMnistTest, TrainingSetIsWholeAndNormalised) {
  const auto dataset = FashionMnist(Split::kTrain);
  ASSERT_EQ(dataset->size(), 60000);
  const Sums sums = BatchSums(*dataset->Get(Range(60000)));
  EXPECT_EQ(sums.of_class, std::vector<int64_t>(10, 6000));
  const double pixels = 60000.0 * 784;
  // The sum of all bytes is known; this is it, as the mean says it.
  const double mean = (3431114169.0 / pixels / 255 - 0.2860) / 0.3530;
  EXPECT_NEAR(sums.value / pixels, mean, 1e-6);
  EXPECT_NEAR(sums.value / pixels, 0.0, 1e-3);
  EXPECT_NEAR(sums.square / pixels, 1.0, 1e-3);
}

TEST(FashionMnistTest, TestSetIsWhole) {
  const auto dataset = FashionMnist(Split::kTest);
  ASSERT_EQ(dataset->size(), 10000);
  const Sums sums = BatchSums(*dataset->Get(Range(10000)));
  EXPECT_EQ(sums.of_class, std::vector<int64_t>(10, 1000));
  const double pixels = 10000.0 * 784;
  EXPECT_NEAR(sums.value / pixels,
              (573469082.0 / pixels / 255 - 0.2860) / 0.3530, 1e-6);
}

}  // namespace
}  // namespace tandem::mnist_test
