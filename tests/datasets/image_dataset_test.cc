// Images with random changes: the same in every layout, and after a resume.

#include "datasets/image_dataset.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/image_codec/image_codec.h"
#include "core/testing/statuses.h"
#include "datasets/input_pixels.h"
#include "datasets/loader.h"
#include "datasets/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datasets/numbers.h"

namespace tandem::image_dataset_test {
namespace {

constexpr int64_t kImages = 23;
constexpr int64_t kBatch = 8;  // of all replicas together

// A folder of 23 images of other sizes each, in two classes.
const std::string& ImageFolder() {
  static const auto* const folder = [] {
    auto* const path =
        new std::string(absl::StrCat(testing::TempDir(), "/image_dataset"));
    std::filesystem::remove_all(*path);
    for (int64_t i = 0; i < kImages; ++i) {
      const at::Tensor image = at::arange((5 + i) * (30 - i) * 3)
                                   .add(i)
                                   .mul(7)
                                   .remainder(256)
                                   .to(at::kByte);
      const std::string png = *EncodePng(image.view({3, 5 + i, 30 - i}));
      for (const char* set : {"train", "val"}) {
        const std::string its_class =
            absl::StrCat(*path, "/", set, "/", i % 2 == 0 ? "even" : "odd");
        std::filesystem::create_directories(its_class);
        std::ofstream(absl::StrCat(its_class, "/", i + 100, ".png"),
                      std::ios::binary)
            << png;
      }
    }
    return path;
  }();
  return *folder;
}

std::shared_ptr<const Dataset> OpenFolder(Split split = Split::kTrain,
                                          uint64_t seed = 3) {
  DatasetOptions options;
  options.name = "image_folder";
  options.data_dir = ImageFolder();
  options.split = split;
  options.seed = seed;
  options.image.size = 12;
  options.image.augment = {"random_resized_crop", "flip"};
  auto dataset = MakeDataset(options);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

TEST(ImageDatasetTest, HasTheShapeAndClassesOfTheFolder) {
  const auto data = OpenFolder();
  EXPECT_EQ(data->size(), kImages);
  EXPECT_EQ(data->classes(), 2);
  EXPECT_FALSE(data->tokens());
  EXPECT_EQ(data->input_shape(), (std::vector<int64_t>{3, 12, 12}));
  EXPECT_EQ(data->digest().size(), 8u);
  const auto batch = data->Get({22, 0});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs.sizes(), at::IntArrayRef({2, 3, 12, 12}));
  EXPECT_EQ(batch->inputs.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(batch->targets, at::tensor({1, 0}, at::kLong)));
  EXPECT_EQ(data->Get({23}).status().code(), absl::StatusCode::kOutOfRange);
  const auto targets = data->Get({5}, {/*inputs=*/false, /*targets=*/true});
  EXPECT_FALSE(targets->inputs.defined());
}

TEST(ImageDatasetTest, ClassesAreCalledAsTheirFolders) {
  const auto data = OpenFolder();
  EXPECT_EQ(data->ClassName(0), "even");
  EXPECT_EQ(data->ClassName(1), "odd");
}

TEST(ImageDatasetTest, EachEpochChangesTrainingImagesAnew) {
  const auto data = OpenFolder();
  const auto inputs = [&](int64_t epoch) {
    return data->GetInEpoch(epoch, {4, 5}, {})->inputs;
  };
  EXPECT_TRUE(at::equal(inputs(0), data->Get({4, 5})->inputs));
  EXPECT_TRUE(at::equal(inputs(6), inputs(6)));
  EXPECT_FALSE(at::equal(inputs(6), inputs(7)));
  EXPECT_FALSE(at::equal(
      inputs(6),
      OpenFolder(Split::kTrain, 4)->GetInEpoch(6, {4, 5}, {})->inputs));
  const auto test = OpenFolder(Split::kTest);
  EXPECT_TRUE(at::equal(test->GetInEpoch(6, {4}, {})->inputs,
                        test->GetInEpoch(7, {4}, {})->inputs));
}

// The batches of a job of so many ranks, from `start` to the end of the epoch:
// those of all ranks, put together.
std::vector<Batch> GlobalBatches(int64_t ranks, int64_t workers,
                                 const SamplerState& start) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    DistributedSamplerOptions sampling;
    sampling.num_replicas = ranks;
    sampling.rank = rank;
    sampling.seed = 9;
    sampling.drop_last = true;
    sampling.slices_of = kBatch;
    const auto sampler = MakeSampler(kImages, sampling);
    ExpectOk(sampler->Restore(start));
    LoaderOptions options = BatchOptions(kBatch / ranks, workers);
    options.drop_last = true;
    loaders.push_back(MakeLoader(OpenFolder(), sampler, options));
    loaders.back()->StartEpoch();
  }
  std::vector<Batch> batches;
  for (int64_t i = 0; i < loaders.front()->num_batches(); ++i) {
    std::vector<at::Tensor> inputs, targets;
    for (const auto& loader : loaders) {
      auto batch = loader->Next();
      EXPECT_TRUE(batch.ok()) << batch.status();
      inputs.push_back((*batch)->inputs);
      targets.push_back((*batch)->targets);
    }
    batches.push_back({at::cat(inputs), at::cat(targets), kBatch});
  }
  return batches;
}

void ExpectSame(const std::vector<Batch>& batches,
                const std::vector<Batch>& expected) {
  ASSERT_EQ(batches.size(), expected.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_TRUE(at::equal(batches[i].inputs, expected[i].inputs)) << i;
    EXPECT_TRUE(at::equal(batches[i].targets, expected[i].targets)) << i;
  }
}

TEST(ImageDatasetTest, AnyNumberOfRanksAndWorkersHasTheSameBits) {
  for (const int64_t epoch : {0, 5}) {
    const std::vector<Batch> one = GlobalBatches(1, 0, {epoch, 0});
    ASSERT_EQ(one.size(), 2u);
    for (const int64_t ranks : {1, 2, 4}) {
      for (const int64_t workers : {0, 3}) {
        ExpectSame(GlobalBatches(ranks, workers, {epoch, 0}), one);
      }
    }
  }
  EXPECT_FALSE(at::equal(GlobalBatches(1, 0, {0, 0})[0].inputs,
                         GlobalBatches(1, 0, {5, 0})[0].inputs));
}

TEST(ImageDatasetTest, AResumedEpochHasTheSameBits) {
  const std::vector<Batch> whole = GlobalBatches(1, 1, {5, 0});
  const std::vector<Batch> rest = {whole[1]};
  for (const int64_t ranks : {1, 2, 4}) {
    ExpectSame(GlobalBatches(ranks, 1, {5, kBatch}), rest);
  }
}

TEST(ImageDatasetTest, ErrorsNameTheSampleAndItsFile) {
  const std::string file = absl::StrCat(ImageFolder(), "/val/even/100.png");
  const auto data = OpenFolder(Split::kTest);
  std::filesystem::resize_file(file, 50);
  EXPECT_THAT(
      data->Get({1, 0}).status(),
      StatusIs(absl::StatusCode::kDataLoss, "sample 0", file, "truncated"));
  std::filesystem::remove(file);
  EXPECT_THAT(data->Get({0}).status(),
              StatusIs(absl::StatusCode::kNotFound, "sample 0", file));
}

TEST(ImageDatasetTest, SeveralNamesNeedAFolder) {
  for (const char* name : {"image_folder", "cifar10", "cifar100"}) {
    DatasetOptions options;
    options.name = name;
    EXPECT_THAT(MakeDataset(options).status(),
                InvalidArgument(name, "needs --data_dir"));
  }
}

TEST(ImageDatasetTest, OpensCifar10WithItsOwnNormalization) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/cifar");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/test_batch.bin", std::ios::binary)
      << '\x04' << std::string(3072, '\xff');
  DatasetOptions options;
  options.name = "cifar10";
  options.data_dir = folder;
  options.split = Split::kTest;
  const auto data = MakeDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->input_shape(), (std::vector<int64_t>{3, 32, 32}));
  const auto batch = (*data)->Get({0});
  EXPECT_EQ(batch->targets[0].item<int64_t>(), 4);
  EXPECT_EQ(batch->inputs[0][1][31][7].item<float>(),
            (1.0f - 0.4822f) / 0.2435f);
  const auto image = InputPixels(batch->inputs[0], (*data)->pixels());
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_TRUE(at::equal(*image, at::full({3, 32, 32}, 255, at::kByte)));
}

}  // namespace
}  // namespace tandem::image_dataset_test
