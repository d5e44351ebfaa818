#include "datasets/registry.h"

#include <string>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/files.h"

namespace tandem::registry_test {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<std::unique_ptr<Dataset>> Make(const std::string& name,
                                              Split split = Split::kTrain) {
  DatasetOptions options;
  options.name = name;
  options.split = split;
  return MakeDataset(options);
}

TEST(RegistryTest, AnUnknownNameListsTheKnownOnes) {
  const absl::Status status = Make("cifar").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "unknown data set 'cifar': choose one of cifar10, cifar100, mnist, "
            "npy, tokens, synthetic, image_folder, fashion_mnist and 1 more "
            "(train --help=dataset lists all); did you mean cifar10?");
  EXPECT_THAT(
      DatasetNames(),
      ElementsAre("cifar10", "cifar100", "fashion_mnist", "image_folder",
                  "mnist", "npy", "synthetic", "synthetic_tokens", "tokens"));
}

TEST(RegistryTest, FashionMnistNeedsNoFolder) {
  EXPECT_EQ((*Make("fashion_mnist"))->size(), 60000);
  EXPECT_EQ((*Make("fashion_mnist", Split::kTest))->size(), 10000);
}

TEST(RegistryTest, MnistNeedsAFolder) {
  EXPECT_THAT(Make("mnist").status(), Says("needs --data_dir"));
  DatasetOptions options;
  options.name = "mnist";
  options.data_dir = ::testing::TempDir();
  options.split = Split::kTest;
  WriteTestFile("t10k-images-idx3-ubyte",
                IdxBytes({1, 28, 28}, std::string(784, '\0')));
  WriteTestFile("t10k-labels-idx1-ubyte", IdxBytes({1}, {3}));
  const auto dataset = MakeDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 1);
}

TEST(RegistryTest, TokensNeedAFolder) {
  EXPECT_THAT(Make("tokens").status(), Says("need a data_dir"));
  DatasetOptions options;
  options.name = "tokens";
  options.data_dir = ::testing::TempDir();
  options.split = Split::kTest;
  options.context = 2;
  options.vocabulary = 200;
  WriteTestFile("val.bin", std::string("\1\0\2\0\3\0", 6));
  const auto dataset = MakeDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 1);
  EXPECT_EQ((*dataset)->classes(), 200);
  EXPECT_THAT((*dataset)->input_shape(), ElementsAre(2));
}

TEST(RegistryTest, SyntheticImagesAreResNetsByDefault) {
  const auto dataset = Make("synthetic");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->input_shape(), ElementsAre(3, 224, 224));
  EXPECT_EQ((*dataset)->classes(), 10);
  EXPECT_EQ((*dataset)->size(), 10240);
  EXPECT_EQ((*Make("synthetic", Split::kTest))->size(), 1280);
}

TEST(RegistryTest, SyntheticTokensAreGptTinysByDefault) {
  const auto dataset = Make("synthetic_tokens");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->input_shape(), ElementsAre(128));
  EXPECT_EQ((*dataset)->classes(), 256);
  EXPECT_EQ((*dataset)->size(), 8192);
}

TEST(RegistryTest, SyntheticSettingsArePassedOn) {
  DatasetOptions options;
  options.name = "synthetic";
  options.image_shape = {1, 5, 7};
  options.classes = 3;
  options.length = 11;
  const auto images = MakeDataset(options);
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_THAT((*images)->input_shape(), ElementsAre(1, 5, 7));
  EXPECT_EQ((*images)->classes(), 3);
  EXPECT_EQ((*images)->size(), 11);
  options.name = "synthetic_tokens";
  options.context = 6;
  options.vocabulary = 19;
  const auto tokens = MakeDataset(options);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT((*tokens)->input_shape(), ElementsAre(6));
  EXPECT_EQ((*tokens)->classes(), 19);
}

}  // namespace
}  // namespace tandem::registry_test
