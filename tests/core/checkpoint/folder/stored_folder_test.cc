#include "core/checkpoint/folder/stored_folder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/MemoryFormat.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/tensor_shard.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/digest/sha256.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

namespace tandem::stored_folder_test {
namespace {

RowParts Parts() {
  return {{"head.0.weight", {"head.weight", 0, 3, 5}},
          {"head.1.weight", {"head.weight", 3, 2, 5}}};
}

at::Tensor Whole(double first) {
  return at::arange(first, first + 10).view({5, 2});
}

// The parts' weights and a state of them, of which a rank may have a slice.
StatePart Held() {
  StatePart part;
  part.tensors = {
      {"head.1.weight", Whole(0).narrow(0, 3, 2)},
      {"head.0.weight", Whole(0).narrow(0, 0, 3)},
      {"body.weight", Whole(50)},
      {"optimizer.head.0.weight.step", at::scalar_tensor(4)},
      {"optimizer.head.1.weight.step", at::scalar_tensor(4)},
      {"optimizer.head.0.weight.exp_avg", Whole(20).narrow(0, 0, 3)},
      {"optimizer.head.1.weight.exp_avg",
       Whole(20).view({-1}).narrow(0, 6, 4)}};
  part.slices["optimizer.head.1.weight.exp_avg"] = {{2, 2}, {2, 1}, 0};
  return part;
}

TEST(JoinedRowsTest, ACheckpointHasWholeWeights) {
  const JoinedState joined = JoinRows(Held(), Parts());
  FolderSave save;
  save.path = testing::TempDir() + "/joined_rows";
  save.metadata = CheckpointMetadata(TrainingProgress());
  save.tensor_of_slice = joined.tensor_of_slice;
  ASSERT_TRUE(SaveFolder(save, joined.part).ok());
  // The file is what it was before there were shards.
  Sha256 hash;
  hash.Update(ReadBytes(save.path + "/rank-00000.safetensors"));
  EXPECT_EQ(hash.HexDigest(),
            "4046b2e4c38ff3c40643cde4595a7918ca062320db59875d32b9b4897c99bfa8");
  const auto stored = OpenCheckpointAt(save.path);
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->model.size(), 2u);
  ASSERT_EQ(stored->optimizer.size(), 2u);
  std::map<std::string, at::Tensor> found;
  for (const StoredTensors* kind : {&stored->model, &stored->optimizer}) {
    for (const StoredTensor& each : *kind) {
      EXPECT_TRUE(Verify(each).ok());
      const auto values = each.read();
      ASSERT_TRUE(values.ok()) << values.status();
      found[each.info.name] = *values;
    }
  }
  EXPECT_TRUE(found["head.weight"].equal(Whole(0)));
  EXPECT_TRUE(found["body.weight"].equal(Whole(50)));
  EXPECT_TRUE(found["head.weight.exp_avg"].equal(Whole(20)));
  EXPECT_EQ(found["head.weight.step"].dim(), 0);
}

TEST(JoinedRowsTest, ASliceOfAPartIsOneOfTheWeight) {
  StatePart part;
  const std::string name = "optimizer.head.1.weight.exp_avg";
  part.tensors = {{name, at::arange(3.)}};
  part.slices[name] = {{2, 2}, {2, 1}, 1};
  const JoinedState joined = JoinRows(part, Parts());
  const TensorSlice& slice = joined.part.slices.at(name);
  EXPECT_EQ(slice.begin, 3 * 2 + 1);
  EXPECT_EQ(slice.sizes, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(joined.tensor_of_slice.at(name), "optimizer.head.weight.exp_avg");
}

// Ranks may have shards of a part.
TEST(JoinedRowsTest, AShardOfAPartIsOneOfTheWeight) {
  StatePart part;
  part.tensors = {{"head.0.weight", Whole(0).narrow(0, 0, 3).narrow(1, 1, 1)},
                  {"optimizer.head.1.weight.exp_avg", at::arange(1.)}};
  part.slices = {{"head.0.weight", SliceOfShard({3, 2}, {{{0, 3}}, {{1, 1}}})},
                 {"optimizer.head.1.weight.exp_avg",
                  {{2, 2}, {1, 1}, 1, {{{0, 2}}, {{0, 1}}}}}};
  part.tensors[0].second = part.tensors[0].second.contiguous();
  const JoinedState joined = JoinRows(part, Parts());
  const TensorSlice& first = joined.part.slices.at("head.0.weight");
  EXPECT_EQ(FormatShard(first.shard), "0+3;1+1");
  EXPECT_EQ(FormatSlice(first), "0;5,2;1,1");
  const TensorSlice& second =
      joined.part.slices.at("optimizer.head.1.weight.exp_avg");
  EXPECT_EQ(FormatShard(second.shard), "3+2;0+1");
  EXPECT_EQ(FormatSlice(second), "1;5,2;1,1");
  EXPECT_EQ(joined.tensor_of_slice.at("head.0.weight"), "head.weight");
}

// Values of a checkpoint's folder, read to where a tensor has its own.

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
