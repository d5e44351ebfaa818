#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/dtype_names.h"
#include "core/base/intern.h"
#include "core/base/json_error.h"
#include "core/base/printable.h"
#include "core/base/registry.h"
#include "core/base/short_list.h"
#include "core/base/text_table.h"

namespace tandem::text_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DtypeNamesTest, GoToAndFro) {
  EXPECT_EQ(DtypeName(c10::ScalarType::BFloat16), "BF16");
  EXPECT_EQ(DtypeOfName("F32"), c10::ScalarType::Float);
  EXPECT_FALSE(DtypeOfName("F33").has_value());
}

TEST(DtypeNamesTest, FlagsMayHavePyTorchsNames) {
  EXPECT_EQ(ShortDtypeName("bfloat16"), "bf16");
  EXPECT_EQ(ShortDtypeName("float64"), "fp64");
  EXPECT_EQ(LongDtypeName("fp16"), "float16");
  for (const char* other : {"", "fp32", "int8"}) {
    EXPECT_EQ(ShortDtypeName(other), other);
  }
  EXPECT_EQ(LongDtypeName("float32"), "float32");
}

TEST(InternTest, OutlivesWhatItIsACopyOf) {
  const char* text = nullptr;
  {
    const std::string made = "layer " + std::to_string(7);
    text = Intern(made);
    EXPECT_NE(text, made.c_str());
  }
  EXPECT_STREQ(text, "layer 7");
  EXPECT_EQ(Intern("layer 7"), text);
  EXPECT_STREQ(Intern("layer 71"), "layer 71");
  EXPECT_STREQ(Intern(""), "");
}

TEST(JsonErrorTest, JsonHasNone) {
  for (const char* text : {"{}", " [1, 2.5e3, \"a\\u00e9\"]\n", "null"}) {
    EXPECT_EQ(JsonError(text), "") << text;
  }
}

TEST(JsonErrorTest, LineAndWordAreNamed) {
  EXPECT_EQ(JsonError("{\"a\": 1,\n \"b\": [0.0, Infinity]}"),
            ": line 2 has 'Infinity'");
  EXPECT_EQ(JsonError("{\"a\": -Infinity}"), ": line 1 has '-Infinity'");
  EXPECT_EQ(JsonError("{\n\n\"a\": NaN}"), ": line 3 has 'NaN'");
  EXPECT_EQ(JsonError("{\"a\": nan}"), ": line 1 has 'nan'");
  EXPECT_EQ(JsonError("{\"a\": 1,}"),
            ": line 1 has '}', expected string literal");
  EXPECT_EQ(JsonError("{\"a\": \"\xff\"}"), ": line 1 has '\\xff'");
}

TEST(JsonErrorTest, WhatIsCutOffOrTooLargeIsSaid) {
  for (const char* text : {"", "{", "{\"a\": [1"}) {
    EXPECT_EQ(JsonError(text), ": it ends too early") << text;
  }
  EXPECT_EQ(JsonError("{\"a\": 1e999}"),
            ": a number in it is more than a double holds");
}

TEST(JsonErrorTest, ALoneSurrogateIsSaid) {
  for (const char* text : {"[\n\"x \\ud83d y\"]", "[\n\"\\udc00\"]"}) {
    EXPECT_EQ(JsonError(text),
              ": line 2 ends a lone surrogate, \\ud800 to \\udfff without its "
              "other half, which is no character");
  }
}

TEST(JsonErrorTest, OfOneLineTheByteIsNamed) {
  EXPECT_EQ(JsonErrorInLine("{\"a\": 1}"), "");
  EXPECT_EQ(JsonErrorInLine("{\"a\": 1} {\"b\": 2}"),
            ": byte 10 has '{', expected end of input");
  EXPECT_EQ(JsonErrorInLine("{\"a\": \"b"), ": it ends too early");
  EXPECT_EQ(JsonErrorInLine("[1e999]"),
            ": a number in it is more than a double holds");
  EXPECT_EQ(JsonErrorInLine("[\"\\ud83d\"]"),
            ": byte 9 ends a lone surrogate, \\ud800 to \\udfff without its "
            "other half, which is no character");
}

TEST(Printable, NothingOfAnEscapeSequenceIsLeft) {
  // Clears a terminal's screen, and names its window.
  EXPECT_EQ(Printable("fc1\x1b[2J.weight"), "fc1\\x1b[2J.weight");
  EXPECT_EQ(Printable("\x1b]0;name\x07"), "\\x1b]0;name\\x07");
  // CSI as one character, U+009B; and what a line is overwritten with.
  EXPECT_EQ(Printable("a\xc2\x9b"
                      "31m"),
            "a\\xc2\\x9b31m");
  EXPECT_EQ(Printable("a\rb\bc\x7f"), "a\\rb\\x08c\\x7f");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Printable, WhatIsNoControlCharacterStaysAsItIs) {
  for (const char* text : {"", "transformer.h.0.attn.c_attn.weight", "a \\n b",
                           "gr\xc3\xb6\xc3\x9f", "\xe6\xa8\xa1\xe5\x9e\x8b",
                           "\xc2\xa0", "\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_EQ(PrintableLines(text), text);
  }
}

// Bytes of Latin-1, or of a character that was cut: 0x9b is CSI to some
// terminals.
TEST(Printable, BytesOfNoCharacterAreEscaped) {
  EXPECT_EQ(Printable("caf\xe9 \x9b"
                      "31m"),
            "caf\\xe9 \\x9b31m");
  EXPECT_EQ(Printable("\xc2"), "\\xc2");
  EXPECT_EQ(Printable("\xe6\xa8"), "\\xe6\\xa8");
  EXPECT_EQ(PrintableLines("\xff\n"), "\\xff\n");
}

TEST(Printable, LineEndsStayInLinesAlone) {
  EXPECT_EQ(Printable("a\tb\nc"), "a\\tb\\nc");
  EXPECT_EQ(PrintableLines("a\x1b[0m\nc\n"), "a\\x1b[0m\nc\n");
}

// Entries that are built in, and those that are added to them.

Registry<int> Numbers() { return Registry<int>("number", {{"two", 2}}); }

TEST(RegistryTest, FindsWhatIsBuiltInAndWhatWasAdded) {
  Registry<int> numbers = Numbers();
  EXPECT_THAT(numbers.Added(), IsEmpty());
  ASSERT_TRUE(numbers.Add("one", 1).ok());
  ASSERT_TRUE(numbers.Add("zero", 0).ok());
  ASSERT_NE(numbers.Find("one"), nullptr);
  EXPECT_EQ(*numbers.Find("one"), 1);
  EXPECT_EQ(*numbers.Find("two"), 2);
  EXPECT_EQ(numbers.Find("three"), nullptr);
  EXPECT_THAT(numbers.Names(), ElementsAre("one", "two", "zero"));
  EXPECT_THAT(numbers.Added(), ElementsAre("one", "zero"));
}

TEST(RegistryTest, ANameThatThereIsStaysWhatItWas) {
  Registry<int> numbers = Numbers();
  ASSERT_TRUE(numbers.Add("one", 1).ok());
  for (const char* const name : {"one", "two"}) {
    const absl::Status again = numbers.Add(name, 7);
    EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(again.message(),
              "cannot register number '" + std::string(name) +
                  "': there is one of that name already; choose another name");
    EXPECT_NE(*numbers.Find(name), 7);
  }
}

TEST(ShortList, AFewAreAllNamed) {
  EXPECT_EQ(ShortList(std::vector<std::string>{}), "");
  EXPECT_EQ(ShortList(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(ShortList(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}),
            "1, 2, 3, 4, 5, 6, 7, 8");
}

TEST(ShortList, OfManyTheFirstAndACount) {
  const std::vector<int> sixty(60, 7);
  EXPECT_EQ(ShortList(sixty), "7, 7, 7, 7, 7, 7, 7, 7 and 52 more");
  const std::set<std::string> names = {"c", "a", "b"};
  EXPECT_EQ(ShortList(names, 2), "a, b and 1 more");
  EXPECT_EQ(ShortList(names, 1, "; "), "a; and 2 more");
}

TEST(RankList, OfManyRanksSomeAreNamed) {
  EXPECT_EQ(RankList({3}), "rank 3");
  EXPECT_EQ(RankList({3, 5}), "ranks 3, 5");
  EXPECT_EQ(RankList({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(TextTable, AlignsNumbersRightAndWordsLeft) {
  EXPECT_EQ(TextTable({{"layer", "bytes", "type"},
                       {"fc1", "12 B", "Linear"},
                       {"a", "1024 B"},
                       {"conv2", "", "x"}}),
            "layer   bytes  type\n"
            "fc1      12 B  Linear\n"
            "a      1024 B\n"
            "conv2          x\n");
}

TEST(TextTable, NumbersMayBeNegative) {
  EXPECT_EQ(
      TextTable(
          {{"cost", "flag"}, {"-2.5 %", "-x"}, {"11.0 %", "1"}, {"-", ""}}),
      "  cost  flag\n"
      "-2.5 %  -x\n"
      "11.0 %  1\n"
      "     -\n");
}

TEST(TextTable, NamesMayBeginWithDigits) {
  EXPECT_EQ(TextTable({{"layout", "ms"}, {"2x1", "5,000"}, {"12x1", "7"}}),
            "layout     ms\n"
            "2x1     5,000\n"
            "12x1        7\n");
}

TEST(TextTable, OfNothing) {
  EXPECT_EQ(TextTable({}), "");
  EXPECT_EQ(TextTable({{}}), "\n");
  EXPECT_EQ(TextTable({{"one"}}), "one\n");
}

}  // namespace
}  // namespace tandem::text_test
