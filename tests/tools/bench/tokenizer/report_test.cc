#include "tools/bench/tokenizer/report.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::report_test {
namespace {

using ::testing::HasSubstr;

TokenizerResult Result() {
  TokenizerResult result;
  result.name = "gpt2";
  result.peer = "tokenizers 1.0";
  result.bytes = 1000000;
  result.tokens = 250000;
  result.ours_ms = {100, 200, 125};
  result.peer_ms = {500, 400, 250};
  return result;
}

// 1 MB in 125 ms and in 400 ms.
TEST(ReportTest, ATableHasMegabytesASecondAndTheirRatio) {
  const std::string table = TokenizerTable({Result()});
  EXPECT_THAT(table, HasSubstr("tokenizers 1.0  250000  8.00      2.50"));
  EXPECT_THAT(table, HasSubstr("3.20  2.00 to 5.00"));
}

TEST(ReportTest, WhatFailedHasALineAndNoFigures) {
  TokenizerResult failed = Result();
  failed.failure = "3 tokens, but 4";
  failed.ours_ms.clear();
  failed.peer_ms.clear();
  EXPECT_THAT(TokenizerTable({Result(), failed}),
              HasSubstr("\ngpt2 was not timed: 3 tokens, but 4\n"));
  const nlohmann::json figures = TokenizerJson({failed});
  EXPECT_TRUE(figures["cases"].empty());
  EXPECT_EQ(figures["failures"][0]["reason"], "3 tokens, but 4");
}

TEST(ReportTest, FiguresAreMedians) {
  const nlohmann::json figures = TokenizerJson({Result()});
  const nlohmann::json& first = figures["cases"][0];
  EXPECT_EQ(first["name"], "gpt2");
  EXPECT_EQ(first["peer"], "tokenizers 1.0");
  EXPECT_EQ(first["tokens"], 250000);
  EXPECT_EQ(first["ours_ms"], 125);
  EXPECT_EQ(first["peer_ms"], 400);
  EXPECT_EQ(first["ratio"], 3.2);
  EXPECT_EQ(first["ratio_max"], 5);
}

}  // namespace
}  // namespace tandem::report_test
