#include "tools/bench/tokenizer/suite.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace tandem::suite_test {
namespace {

// 1 MB in 125 ms and in 400 ms.
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

TEST(TokenizerTablesTest, HaveMediansMegabytesASecondAndTheirRatio) {
  const nlohmann::json figures = TablesJson(TokenizerTables({Result()}));
  EXPECT_EQ(figures["cases"][0], (nlohmann::json{{"name", "gpt2"},
                                                 {"peer", "tokenizers 1.0"},
                                                 {"bytes", 1000000},
                                                 {"tokens", 250000},
                                                 {"ours_ms", 125.0},
                                                 {"ours_mb_per_s", 8.0},
                                                 {"peer_ms", 400.0},
                                                 {"peer_mb_per_s", 2.5},
                                                 {"ratio", 3.2},
                                                 {"ratio_min", 2.0},
                                                 {"ratio_max", 5.0}}));
}

TEST(TokenizerTablesTest, WhatFailedHasAReasonAndNoFigures) {
  TokenizerResult failed = Result();
  failed.failure = "3 tokens, but 4";
  failed.ours_ms.clear();
  failed.peer_ms.clear();
  const nlohmann::json both = TablesJson(TokenizerTables({Result(), failed}));
  EXPECT_EQ(both["cases"].size(), 1u);
  EXPECT_EQ(both["failures"][0]["name"], "gpt2");
  const nlohmann::json figures = TablesJson(TokenizerTables({failed}));
  EXPECT_TRUE(figures["cases"].empty());
  EXPECT_EQ(figures["failures"][0]["reason"], "3 tokens, but 4");
}

TEST(RunTokenizerSuiteTest, RefusesAVocabularyThatIsTooSmall) {
  BenchFlags flags;
  flags.vocabulary = 511;
  EXPECT_EQ(
      RunTokenizerSuite(flags, "").status(),
      absl::InvalidArgumentError("--vocabulary=511: expected at least 512"));
}

}  // namespace
}  // namespace tandem::suite_test
