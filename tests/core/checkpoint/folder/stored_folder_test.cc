// Values of a checkpoint's folder, read to where a tensor has its own.

#include "core/checkpoint/folder/stored_folder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/MemoryFormat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/stored_tensors.h"

namespace tandem::stored_folder_test {
namespace {

at::Tensor ConvWeight() {
  return at::arange(84, at::kFloat)
      .view({7, 3, 2, 2})
      .contiguous(at::MemoryFormat::ChannelsLast);
}

std::string Saved(const std::string& name) {
  FolderSave save;
  save.path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  save.metadata = CheckpointMetadata(TrainingProgress());
  StatePart part;
  part.tensors = {{"conv", ConvWeight()},
                  {"fc", at::arange(35, at::kFloat).view({5, 7})},
                  {"nothing", at::empty({0, 3})}};
  const auto saved = SaveFolder(save, part);
  EXPECT_TRUE(saved.ok()) << saved.status();
  return saved.value_or("");
}

const StoredTensor& Named(const StoredCheckpoint& checkpoint,
                          const std::string& name) {
  for (const StoredTensor& each : checkpoint.model) {
    if (each.info.name == name) return each;
  }
  ADD_FAILURE() << name;
  return *checkpoint.model.begin();
}

TEST(StoredFolderTest, ValuesComeWhereTheyAreWantedWhateverTheirOrder) {
  const auto checkpoint = OpenCheckpointAt(Saved("orders"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const at::Tensor rows = at::zeros({7, 3, 2, 2});
  const at::Tensor channels =
      at::zeros({7, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  for (const at::Tensor& target : {rows, channels}) {
    ASSERT_TRUE(ReadInto(Named(*checkpoint, "conv"), target).ok());
    EXPECT_TRUE(at::equal(target, ConvWeight()));
  }
  // Between others: a row's neighbours stay.
  const at::Tensor wide = at::zeros({5, 9});
  ASSERT_TRUE(ReadInto(Named(*checkpoint, "fc"), wide.narrow(1, 1, 7)).ok());
  EXPECT_TRUE(
      at::equal(wide.narrow(1, 1, 7), at::arange(35, at::kFloat).view({5, 7})));
  EXPECT_EQ(wide.select(1, 0).abs().sum().item<float>(), 0);
  EXPECT_EQ(wide.select(1, 8).abs().sum().item<float>(), 0);
  EXPECT_TRUE(ReadInto(Named(*checkpoint, "nothing"), at::empty({0, 3})).ok());
}

TEST(StoredFolderTest, WhatIsOfAnotherFormIsNotWritten) {
  const std::string folder = Saved("forms");
  const std::string file = folder + ".safetensors";
  ASSERT_TRUE(
      WriteSafetensors(file, {{"fc", at::arange(35, at::kFloat).view({5, 7})}},
                       CheckpointMetadata(TrainingProgress()))
          .ok());
  for (const std::string& path : {folder, file}) {
    const auto checkpoint = OpenCheckpointAt(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const StoredTensor& stored = Named(*checkpoint, "fc");
    for (const at::Tensor& other :
         {at::zeros({7, 5}), at::zeros({5, 7}, at::kInt), at::zeros({5, 6}),
          at::zeros({7, 5}).t(), at::zeros({35})}) {
      const auto done = stored.read_into(other);
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_FALSE(*done) << other.sizes();
      EXPECT_EQ(other.abs().sum().item<double>(), 0);
    }
    const at::Tensor same = at::zeros({5, 7});
    EXPECT_TRUE(stored.read_into(same).value());
    EXPECT_EQ(same[4][6].item<float>(), 34);
  }
}

void DamageLastValue(const std::string& folder) {
  std::fstream shard(folder + "/rank-00000.safetensors",
                     std::ios::in | std::ios::out | std::ios::binary);
  shard.seekp(-1, std::ios::end);
  shard.put('x');
}

void ExpectRefusedUnchanged(const std::string& folder,
                            const std::string& name) {
  const auto checkpoint = OpenCheckpointAt(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const at::Tensor target = at::zeros({5, 7});
  const absl::Status read = ReadInto(Named(*checkpoint, name), target);
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_THAT(read.message(), testing::HasSubstr(name));
  EXPECT_TRUE(at::equal(target, at::zeros({5, 7})));
}

TEST(StoredFolderTest, WhatIsDamagedIsNotWritten) {
  const std::string path = Saved("damaged");
  DamageLastValue(path);
  ExpectRefusedUnchanged(path, "fc");
}

TEST(StoredFolderTest, NoPieceIsWrittenWhereALaterOneIsDamaged) {
  const at::Tensor whole = at::arange(35, at::kFloat);
  FolderSave save;
  save.path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/pieces");
  save.metadata = CheckpointMetadata(TrainingProgress());
  save.tensor_of_slice = {{"fc.0", "fc"}, {"fc.1", "fc"}};
  StatePart part;
  part.tensors = {{"fc.0", whole.narrow(0, 0, 20)},
                  {"fc.1", whole.narrow(0, 20, 15)}};
  part.slices = {{"fc.0", {{5, 7}, {7, 1}, 0}}, {"fc.1", {{5, 7}, {7, 1}, 20}}};
  ASSERT_TRUE(SaveFolder(save, part).ok());
  {
    const auto checkpoint = OpenCheckpointAt(save.path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const at::Tensor target = at::zeros({5, 7});
    ASSERT_TRUE(ReadInto(Named(*checkpoint, "fc"), target).ok());
    EXPECT_TRUE(at::equal(target, whole.view({5, 7})));
    EXPECT_TRUE(at::equal(*Named(*checkpoint, "fc").read(), target));
  }
  DamageLastValue(save.path);
  ExpectRefusedUnchanged(save.path, "fc");
}

}  // namespace
}  // namespace tandem::stored_folder_test
