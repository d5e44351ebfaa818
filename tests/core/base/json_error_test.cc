#include "core/base/json_error.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::json_error_test {
namespace {

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

}  // namespace
}  // namespace tandem::json_error_test
