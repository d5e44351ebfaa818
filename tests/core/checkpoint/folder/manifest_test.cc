#include "core/checkpoint/folder/manifest.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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
       {1, 2},
       {{0, 0, 4, 5}, {1, 4, 6, 9}}},
      {{"scalar", c10::ScalarType::Long, {}}, {}, {{1, 0, 1, 3}}},
      {{"empty", c10::ScalarType::Half, {0, 5}}, {5, 1}, {{0, 0, 0, 0}}}};
  return manifest;
}

// With the checksum that it ought to have.
std::string Sealed(const std::string& text) {
  std::string rest = text.substr(text.find(',') - 1);
  return absl::StrCat(
      "{\"crc32\":\"",
      absl::Hex(Crc32(0, rest.data(), rest.size()), absl::kZeroPad8), rest);
}

TEST(ManifestTest, ComesBackAsItWasWritten) {
  const std::string text = FormatManifest(Small());
  EXPECT_EQ(Sealed(text), text);
  const auto parsed = ParseManifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FormatManifest(*parsed), text);
  EXPECT_EQ(parsed->tensors[0].strides, Small().tensors[0].strides);
  EXPECT_EQ(parsed->tensors[0].pieces[1].crc32, 9u);
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
      {{"\"version\":1", "\"version\":2"}, "of version 2"},
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

}  // namespace
}  // namespace tandem::manifest_test
