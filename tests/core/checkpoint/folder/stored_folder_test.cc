#include "core/checkpoint/folder/stored_folder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/MemoryFormat.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/tensor_shard.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/digest/crc32.h"
#include "core/digest/sha256.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

namespace tandem::stored_folder_test {
namespace {

Manifest Small() {
  Manifest manifest;
  manifest.mesh = {{"data", 2}, {"pipe", 1}};
  manifest.metadata = {{"tandem.step", "7"}, {"odd", "\"\n"}};
  manifest.files = {{"rank-00000.safetensors", 100, 0xdeadbeef},
                    {"rank-00001.safetensors", 7, 1}};
  manifest.tensors = {
      {{"a", c10::ScalarType::Float, {2, 3}},
       {{WholeShard({2, 3}), {1, 2}, {{0, 0, 4, 5}, {1, 4, 6, 9}}}}},
      {{"scalar", c10::ScalarType::Long, {}}, {{{}, {}, {{1, 0, 1, 3}}}}},
      {{"empty", c10::ScalarType::Half, {0, 5}},
       {{WholeShard({0, 5}), {5, 1}, {{0, 0, 0, 0}}}}}};
  return manifest;
}

// The same, and of a tensor two ranks' columns: the first and the last, which
// lie there column by column, and the one between them, in two pieces.
Manifest Sharded() {
  Manifest manifest = Small();
  manifest.tensors.push_back(
      {{"b", c10::ScalarType::BFloat16, {4, 3}},
       {{{{{0, 4}}, {{0, 1}, {2, 1}}}, {1, 4}, {{0, 0, 8, 7}}},
        {{{{0, 4}}, {{1, 1}}}, {1, 1}, {{0, 0, 1, 7}, {1, 1, 4, 8}}}}});
  return manifest;
}

// With the checksum that it ought to have.
std::string Sealed(const std::string& text) {
  std::string rest = text.substr(text.find(',') - 1);
  return absl::StrCat(
      "{\"crc32\":\"",
      absl::Hex(Crc32(0, rest.data(), rest.size()), absl::kZeroPad8), rest);
}

// Programs that know no shards read what has none.
TEST(ManifestTest, WithoutShardsItIsOfTheFirstVersion) {
  const std::string text = FormatManifest(Small());
  EXPECT_TRUE(absl::StrContains(text, "\"version\":1"));
  EXPECT_FALSE(absl::StrContains(text, "shards"));
  EXPECT_TRUE(absl::StrContains(FormatManifest(Sharded()), "\"version\":2"));
  const std::string later =
      Sealed(absl::StrReplaceAll(text, {{"\"version\":1", "\"version\":2"}}));
  const auto parsed = ParseManifest(later);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FormatManifest(*parsed), text);
}

TEST(ManifestTest, ShardsComeBackAsTheyWereWritten) {
  const std::string text = FormatManifest(Sharded());
  const auto parsed = ParseManifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FormatManifest(*parsed), text);
  const ManifestTensor& tensor = parsed->tensors.back();
  ASSERT_EQ(tensor.shards.size(), 2u);
  EXPECT_EQ(FormatShard(tensor.shards[0].ranges), "0+4;0+1,2+1");
  EXPECT_EQ(tensor.shards[0].strides, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(tensor.shards[1].pieces[1].file, 1u);
  EXPECT_TRUE(absl::StrContains(
      text, R"("ranges":[[[0,4]],[[0,1],[2,1]]],"strides":[1,4]})"));
}

TEST(ManifestTest, ComesBackAsItWasWritten) {
  const std::string text = FormatManifest(Small());
  EXPECT_EQ(Sealed(text), text);
  const auto parsed = ParseManifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FormatManifest(*parsed), text);
  EXPECT_EQ(parsed->tensors[0].shards[0].strides,
            Small().tensors[0].shards[0].strides);
  EXPECT_EQ(parsed->tensors[0].shards[0].pieces[1].crc32, 9u);
  EXPECT_EQ(parsed->files[0].crc32, 0xdeadbeef);
  EXPECT_EQ(parsed->metadata.at("odd"), "\"\n");
  EXPECT_EQ(parsed->mesh.at("data"), 2);
}

TEST(ManifestTest, EveryChangedBitIsSeen) {
  const std::string text = FormatManifest(Small());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    EXPECT_FALSE(ParseManifest(changed).ok()) << at;
    EXPECT_FALSE(ParseManifest(text.substr(0, at)).ok()) << at;
  }
}

// Somebody's own, with a right checksum.
TEST(ManifestTest, WhatIsNoManifestIsRefusedWithTheReason) {
  const std::string text = FormatManifest(Small());
  const std::pair<std::pair<std::string, std::string>, const char*> cases[] = {
      {{"tandem.checkpoint_folder", "zip"}, "its format is 'zip'"},
      {{"\"version\":1", "\"version\":3"}, "of version 3"},
      {{"\"version\":1", "\"version\":-1"}, "\"version\" must be there"},
      {{"rank-00001.safetensors", "../x"}, "a file's name must be no path"},
      {{"\"bytes\":7", "\"bytes\":\"7\""}, "\"bytes\" must be there"},
      {{"deadbeef", "deadbee"}, "eight hexadecimal digits"},
      {{"\"F16\"", "\"F17\""}, "dtype 'F17' of tensor empty"},
      {{"\"name\":\"scalar\"", "\"name\":\"a\""}, "tensor a comes twice"},
      {{"\"file\":0", "\"file\":2"}, "a file that is unknown"},
      {{"\"begin\":4", "\"begin\":3"}, "tensor a has a piece of elements 3"},
      {{"\"end\":6", "\"end\":7"}, "tensor a has 6 elements, its pieces 7"},
      {{"\"strides\":[1,2]", "\"strides\":[1,3]"}, "tensor a has strides"},
      {{"\"strides\":[1,2]", "\"strides\":[1]"}, "tensor a has strides"},
      {{"\"shape\":[2,3]", "\"shape\":[4611686018427387904,3]"},
       "more than 2^63 bytes"},
      {{"\"shape\":[2,3]", "\"shape\":[2,-3]"}, "a number was expected"},
      {{"\"data\":2", "\"data\":2.5"}, "a number was expected"},
      {{"\"tandem.step\":\"7\"", "\"tandem.step\":7"}, "must hold texts"},
      {{"\"mesh\":", "\"mush\":"}, "\"mesh\" must be there"},
      {{"\"version\":1}", "\"version\":1"}, "no JSON"},
  };
  for (const auto& [edit, message] : cases) {
    const std::string edited =
        Sealed(absl::StrReplaceAll(text, {{edit.first, edit.second}}));
    ASSERT_NE(edited, text) << edit.first;
    const absl::Status status = ParseManifest(edited).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
  }
}

// Shards that overlap, leave holes or lie elsewhere are never read by.
TEST(ManifestTest, ShardsThatMakeUpNoTensorAreRefusedByName) {
  const std::string text = FormatManifest(Sharded());
  const std::pair<std::pair<std::string, std::string>, const char*> cases[] = {
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[0,1]]"}, "overlap, or make no grid"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[2,1]]"}, "along dimension 1"},
      {{"[[0,4]],[[1,1]]", "[[0,2],[2,2]],[[1,1]]"}, "along dimension 0"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[3,1]]"}, "tensor b: ranges '3+1'"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[1,2]]"},
       "tensor b has 8 elements, its pieces 4"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[1,0]]"}, "ranges '1+0'"},
      {{"[[0,4]],[[1,1]]", "[[0,4]]"}, "1 dimensions"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[1,1,1]]"}, "its begin and its length"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[1,1]"}, "its begin and its length"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],7"}, "must hold arrays"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[1,-1]]"}, "a number was expected"},
      {{"[[0,4]],[[1,1]]", "[[0,4]],[[1,9223372036854775807]]"},
       "of dimension 1"},
      {{"[[0,4]],[[0,1],[2,1]]", "[[0,4]],[[0,1]]"},
       "tensor b has 4 elements, its pieces 8"},
      {{"\"strides\":[1,4]", "\"strides\":[1,2]"}, "tensor b has strides"},
      {{"\"end\":8", "\"end\":7"}, "tensor b has 8 elements, its pieces 7"},
      {{"\"shape\":[4,3]", "\"shape\":[4,4]"},
       "tensor b has 16 elements, its shards 12"},
      {{"\"version\":2", "\"version\":1"}, "\"pieces\" must be there"},
      {{"\"shards\":[", "\"shards\":[7,"}, "tensor b: an object"},
  };
  for (const auto& [edit, message] : cases) {
    const std::string edited =
        Sealed(absl::StrReplaceAll(text, {{edit.first, edit.second}}));
    ASSERT_NE(edited, text) << edit.first;
    const absl::Status status = ParseManifest(edited).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
  }
}

TEST(ManifestTest, ATensorHasEachShardOnce) {
  ManifestTensor tensor = Sharded().tensors.back();
  EXPECT_TRUE(CheckTensor(tensor).ok());
  tensor.shards.push_back(tensor.shards[1]);
  absl::Status status = CheckTensor(tensor);
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "tensor b has two shards of the same elements"))
      << status;
  tensor.shards.clear();
  status = CheckTensor(tensor);
  EXPECT_TRUE(absl::StrContains(status.message(), "tensor b lies in no file"))
      << status;
}

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
