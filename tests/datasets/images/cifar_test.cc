// CIFAR-10 and CIFAR-100, from files that are written here.

#include "datasets/images/cifar.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::cifar_test {
namespace {

// Red, green and blue are `red`, red + 1 and red + 2, but for the first pixel
// of the second row, whose red is 77.
std::string Record(const std::string& classes, char red) {
  std::string pixels;
  for (char channel = 0; channel < 3; ++channel) {
    pixels += std::string(32 * 32, static_cast<char>(red + channel));
  }
  pixels[32] = 77;
  return classes + pixels;
}

std::string NewFolder(const std::string& name) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

void Write(const std::string& folder, const std::string& name,
           const std::string& bytes) {
  std::ofstream(absl::StrCat(folder, "/", name), std::ios::binary) << bytes;
}

std::string Cifar10Folder(const std::string& name) {
  std::string folder = NewFolder(name);
  for (char batch = 1; batch <= 5; ++batch) {
    Write(folder, absl::StrCat("data_batch_", static_cast<int>(batch), ".bin"),
          Record(std::string(1, batch), static_cast<char>(10 * batch)) +
              Record(std::string(1, 0), 100));
  }
  Write(folder, "test_batch.bin", Record("\x09", 5));
  return folder;
}

TEST(CifarTest, HasTheRecordsOfAllBatchesInOrder) {
  const std::string folder = Cifar10Folder("cifar10");
  const auto train = OpenCifar(folder, Cifar10(), true);
  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_EQ((*train)->size(), 10);
  EXPECT_EQ((*train)->classes(), 10);
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < 10; ++i) classes.push_back((*train)->ClassNumber(i));
  EXPECT_EQ(classes, (std::vector<int64_t>{1, 0, 2, 0, 3, 0, 4, 0, 5, 0}));
  const at::Tensor image = *(*train)->Image(6);
  EXPECT_EQ(image.sizes(), at::IntArrayRef({3, 32, 32}));
  EXPECT_EQ(image[0][0][0].item<int64_t>(), 40);
  EXPECT_EQ(image[0][1][0].item<int64_t>(), 77);
  EXPECT_EQ(image[1][31][31].item<int64_t>(), 41);
  EXPECT_EQ(image[2][0][0].item<int64_t>(), 42);

  const auto test = OpenCifar(folder, Cifar10(), false);
  ASSERT_EQ((*test)->size(), 1);
  EXPECT_EQ((*test)->ClassNumber(0), 9);
  EXPECT_NE((*test)->digest(), (*train)->digest());
}

TEST(CifarTest, ClassesHaveTheNamesOfTheirFileIfThereIsOne) {
  const std::string folder = Cifar10Folder("cifar10_names");
  const auto name = [&](int64_t number) {
    return (*OpenCifar(folder, Cifar10(), false))->ClassName(number);
  };
  EXPECT_EQ(name(0), "");
  Write(folder, "batches.meta.txt", "airplane\nautomobile\r\n\n");
  EXPECT_EQ(name(0), "airplane");
  EXPECT_EQ(name(1), "automobile");
  EXPECT_EQ(name(9), "");
}

TEST(CifarTest, TheDigestIsTheContents) {
  const std::string folder = Cifar10Folder("cifar10_digest");
  const std::string before = (*OpenCifar(folder, Cifar10(), true))->digest();
  EXPECT_EQ((*OpenCifar(folder, Cifar10(), true))->digest(), before);
  Write(folder, "data_batch_3.bin",
        Record("\x03", 30) + Record(std::string(1, 0), 101));
  EXPECT_NE((*OpenCifar(folder, Cifar10(), true))->digest(), before);
}

TEST(CifarTest, OfCifar100TheFineClassCounts) {
  const std::string folder = NewFolder("cifar100");
  Write(folder, "train.bin", Record("\x13\x63", 1) + Record("\x01\x02", 1));
  Write(folder, "test.bin", Record("\x02\x64", 1));
  const auto train = OpenCifar(folder, Cifar100(), true);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->classes(), 100);
  EXPECT_EQ((*train)->ClassNumber(0), 99);
  EXPECT_EQ((*train)->ClassNumber(1), 2);
  EXPECT_THAT(OpenCifar(folder, Cifar100(), false).status(),
              StatusIs(absl::StatusCode::kDataLoss, "test.bin: class 100",
                       "record 0", "0 to 99"));
}

TEST(CifarTest, RefusesFilesOfOtherSizes) {
  const std::string folder = Cifar10Folder("cifar10_sizes");
  const std::string whole = Record("\x01", 1);
  for (const std::string& bytes :
       {std::string(), whole.substr(1), whole + "x"}) {
    Write(folder, "data_batch_4.bin", bytes);
    EXPECT_THAT(
        OpenCifar(folder, Cifar10(), true).status(),
        StatusIs(absl::StatusCode::kDataLoss, "data_batch_4.bin",
                 absl::StrCat(bytes.size(), " bytes"), "records of 3073"));
  }
  std::filesystem::remove(absl::StrCat(folder, "/data_batch_4.bin"));
  EXPECT_THAT(OpenCifar(folder, Cifar10(), true).status(),
              StatusIs(absl::StatusCode::kNotFound, "data_batch_4.bin",
                       "binary version"));
}

TEST(CifarTest, RefusesClassesThatThereAreNot) {
  const std::string folder = Cifar10Folder("cifar10_classes");
  Write(folder, "test_batch.bin", Record("\x09", 1) + Record("\x0a", 1));
  EXPECT_THAT(OpenCifar(folder, Cifar10(), false).status(),
              StatusIs(absl::StatusCode::kDataLoss, "test_batch.bin: class 10",
                       "record 1", "CIFAR-10"));
}

}  // namespace
}  // namespace tandem::cifar_test
