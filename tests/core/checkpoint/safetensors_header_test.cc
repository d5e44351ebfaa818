#include "core/checkpoint/safetensors_header.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tandem::safetensors_header_test {
namespace {

TEST(SafetensorsHeader, GivesEntriesInTheOrderOfTheData) {
  const auto header = ParseSafetensorsHeader(
      R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},)"
      R"("__metadata__":{"k":"v","":""},)"
      R"("a":{"data_offsets":[0,8],"shape":[],"dtype":"I64"},)"
      R"("e":{"dtype":"F16","shape":[3,0],"data_offsets":[8,8]}}   )",
      16);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[0].dtype, c10::ScalarType::Long);
  EXPECT_TRUE(header->entries[0].shape.empty());
  EXPECT_EQ(header->entries[1].name, "e");
  EXPECT_EQ(header->entries[2].name, "b");
  EXPECT_EQ(header->entries[2].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(header->entries[2].begin, 8u);
  EXPECT_EQ(header->entries[2].bytes(), 8u);
  EXPECT_EQ(header->metadata, (SafetensorsMetadata{{"k", "v"}, {"", ""}}));
}

TEST(SafetensorsHeader, AcceptsNoTensors) {
  EXPECT_TRUE(ParseSafetensorsHeader("{}", 0).ok());
  EXPECT_TRUE(ParseSafetensorsHeader(R"({"__metadata__":{}})", 0).ok());
}

// The format's own library reads them so, from version 0.8 on.
TEST(SafetensorsHeader, AcceptsWhiteSpaceBeforeItAndNoMetadata) {
  EXPECT_TRUE(ParseSafetensorsHeader(" \t\n{}\r ", 0).ok());
  const auto header = ParseSafetensorsHeader(
      R"(  {"__metadata__":null,)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      4);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_TRUE(header->metadata.empty());
  ASSERT_EQ(header->entries.size(), 1u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_FALSE(
      ParseSafetensorsHeader(R"({"__metadata__":null,"__metadata__":{}})", 0)
          .ok());
}

// Their sizes are looked at, and that they do not overlap.
TEST(SafetensorsHeader, KnowsDtypesThatAreNotRead) {
  const auto header = ParseSafetensorsHeader(
      R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
      R"("scales":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[4,8]},)"
      R"("packed":{"dtype":"F4","shape":[2,8],"data_offsets":[8,16]},)"
      R"("six":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[16,19]},)"
      R"("fnuz":{"dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[19,21]}})",
      21);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->entries[0].DtypeText(), "BF16");
  EXPECT_EQ(header->entries[1].DtypeText(), "F8_E8M0");
  EXPECT_EQ(header->entries[1].dtype, c10::ScalarType::Undefined);
  EXPECT_EQ(header->entries[2].DtypeText(), "F4");
  EXPECT_FALSE(
      ParseSafetensorsHeader(
          R"({"a":{"dtype":"F4","shape":[2,8],"data_offsets":[0,16]}})", 16)
          .ok());
}

TEST(SafetensorsHeader, FormatsWhatItParses) {
  SafetensorsHeader header;
  header.metadata = {{"step", "7"}, {"quote", "\"\n"}};
  header.entries = {{"w", c10::ScalarType::BFloat16, {2, 3}, 0, 12},
                    {"flag", c10::ScalarType::Bool, {}, 12, 13}};
  const std::string json = FormatSafetensorsHeader(header);
  EXPECT_EQ(json.size() % 8, 0u);
  const auto again = ParseSafetensorsHeader(json, 13);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->metadata, header.metadata);
  ASSERT_EQ(again->entries.size(), 2u);
  EXPECT_EQ(again->entries[0].dtype, c10::ScalarType::BFloat16);
  EXPECT_EQ(again->entries[1].name, "flag");
  EXPECT_EQ(FormatSafetensorsHeader(*again), json);
}

struct BadHeader {
  const char* json;
  uint64_t data_bytes;
  const char* message;  // part of the expected one
};

// What a careless or a hostile writer may send.
const BadHeader kBad[] = {
    {"", 0, "begin with '{'"},
    {"[]", 0, "begin with '{'"},
    {" ", 0, "begin with '{'"},
    {" []", 0, "begin with '{'"},
    {"\v{}", 0, "begin with '{'"},
    {"\f{}", 0, "begin with '{'"},
    {"{", 0, "no valid JSON"},
    {"{}}", 0, "no valid JSON"},
    {"{} x", 0, "no valid JSON"},
    {"{\"a\xff\":1}", 0, "no valid JSON"},
    {R"({"a":1})", 0, "'a': unexpected number"},
    {R"({"a":null})", 0, "unexpected null"},
    {R"({"a":"x"})", 0, "unexpected text"},
    {R"({"a":[1]})", 0, "an array where none belongs"},
    {R"({"a":{}})", 0, "needs all of"},
    {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "needs all of"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
     "data_offsets must be two"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4,
     "data_offsets must be two"},
    {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[4,0]}})", 4,
     "begin <= end"},
    {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4,
     "unknown dtype 'F33'"},
    {R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", 4,
     "unexpected number"},
    {R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4,
     "an array where none belongs"},
    {R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", 4,
     "unexpected text"},
    {R"({"a":{"dtype":"F32","shape":{"x":1},"data_offsets":[0,4]}})", 4,
     "an object where none belongs"},
    {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4,
     "an array where none belongs"},
    {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4,
     "unexpected text"},
    {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
     "negative number"},
    {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4,
     "no integer"},
    {R"({"a":{"dtype":"F32","shape":[1e3],"data_offsets":[0,4]}})", 4,
     "no integer"},
    {R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})", 4,
     "unexpected boolean"},
    {R"({"a":{"dtype":"F32","shape":[9223372036854775808],)"
     R"("data_offsets":[0,4]}})",
     4, "too large"},
    {R"({"a":{"dtype":"F32","shape":[99999999999999999999999],)"
     R"("data_offsets":[0,4]}})",
     4, "no integer"},
    {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],)"
     R"("data_offsets":[0,0]}})",
     0, "more than 2^63"},
    {R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4],)"
     R"("data_offsets":[0,0]}})",
     0, "more than 2^63"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8,
     "hold 8 bytes, dtype and shape ask for 4"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
     "begins at byte 4 of the data where 0 was expected"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
     6, "'b': begins at byte 2 of the data where 4 was expected"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     4, "where 4 was expected"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3,
     "need 4 bytes of data, the file has 3 (truncated?)"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5,
     "need 4 bytes of data, the file has 5"},
    {"{}", 1, "need 0 bytes"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8, "'a': comes twice"},
    {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],)"
     R"("data_offsets":[0,4]}})",
     4, "'dtype' comes twice"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4,
     "unknown field 'x'"},
    {R"({"__metadata__":3})", 0, "unexpected number"},
    {R"({"__metadata__":"x"})", 0, "unexpected text"},
    {R"({"__metadata__":{"a":1}})", 0, "unexpected number"},
    {R"({"__metadata__":{"a":{}}})", 0, "an object where none belongs"},
    {R"({"__metadata__":{"a":[]}})", 0, "an array where none belongs"},
    {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "'a' comes twice"},
    {R"({"__metadata__":{},"__metadata__":{}})", 0, "comes twice"},
    {R"({"__metadata__":{"a":null}})", 0, "unexpected null"},
    {R"({"__metadata__":[null]})", 0, "an array where none belongs"},
};

TEST(SafetensorsHeader, RefusesWhatIsMalformed) {
  for (const BadHeader& bad : kBad) {
    const auto header = ParseSafetensorsHeader(bad.json, bad.data_bytes);
    ASSERT_FALSE(header.ok()) << bad.json;
    EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(header.status().message(), bad.message))
        << bad.json << " gives: " << header.status().message();
  }
}

TEST(SafetensorsHeader, SurvivesDeepNestingAndEveryCut) {
  EXPECT_FALSE(
      ParseSafetensorsHeader("{\"a\":" + std::string(1000000, '['), 0).ok());
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(ParseSafetensorsHeader(objects, 0).ok());
  const std::string whole =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  ASSERT_TRUE(ParseSafetensorsHeader(whole, 4).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(ParseSafetensorsHeader(whole.substr(0, n), 4).ok()) << n;
  }
}

}  // namespace
}  // namespace tandem::safetensors_header_test
