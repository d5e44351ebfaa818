#include "core/checkpoint/folder/manifest.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/tensor_shard.h"
#include "core/checkpoint/folder/manifest_tensor.h"
#include "core/digest/crc32.h"
#include "gtest/gtest.h"

namespace tandem::manifest_test {
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

// What is replaced in a manifest's text, by what, and what is then said of it.
using Edit = std::pair<std::pair<std::string, std::string>, const char*>;

void ExpectRefused(const std::string& text, const std::vector<Edit>& edits) {
  for (const auto& [edit, message] : edits) {
    const std::string edited =
        Sealed(absl::StrReplaceAll(text, {{edit.first, edit.second}}));
    ASSERT_NE(edited, text) << edit.first;
    const absl::Status status = ParseManifest(edited).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
  }
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
  const std::vector<Edit> cases = {
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
  ExpectRefused(text, cases);
}

// Shards that overlap, leave holes or lie elsewhere are never read by.
TEST(ManifestTest, ShardsThatMakeUpNoTensorAreRefusedByName) {
  const std::string text = FormatManifest(Sharded());
  const std::vector<Edit> cases = {
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
  ExpectRefused(text, cases);
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

}  // namespace
}  // namespace tandem::manifest_test
