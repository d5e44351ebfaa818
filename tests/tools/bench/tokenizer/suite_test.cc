// With a peer that knows bytes alone, in Python's standard library.

#include "tools/bench/tokenizer/suite.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/bench/sides.h"

namespace tandem::tokenizer_suite_test {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kPeer[] = R"(
import hashlib, json, struct, sys
wrong = "--wrong" in sys.argv
paths = dict(f[2:].split("=", 1) for f in sys.argv[1:] if "=" in f)
texts = [json.loads(line) for line in open(paths["documents"])]
for line in open(paths["commands"]):
    command, *arguments = json.loads(line)
    if command == "open":
        answer = {"version": "bytes of " + arguments[0]}
    elif command == "tokens":
        ids = [b + wrong for text in texts for b in text.encode()]
        data = struct.pack("<%dI" % len(ids), *ids)
        answer = {"count": len(ids), "sha256": hashlib.sha256(data).hexdigest()}
    elif command == "time":
        answer = {"ms": 10.0}
    else:
        answer = {"error": "No module named 'tokenizers'"}
    print(json.dumps(answer), flush=True)
)";

TokenizerBench Bench(const std::string& name) {
  TokenizerBench bench;
  bench.folder = testing::TempDir() + "/tokenizer_" + name;
  bench.peer = PythonPeer(bench.folder, kPeer);
  bench.documents = {"one text\n", "W\xc3\xbcrde"};
  bench.tokenizer = "bytes";
  bench.rounds = 3;
  return bench;
}

TEST(RunTest, TokensAreComparedAndThenTimed) {
  const auto results = CompareTokenizers(Bench("same"));
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_THAT(*results, SizeIs(1));
  const TokenizerResult& only = results->front();
  EXPECT_EQ(only.name, "bytes");
  EXPECT_EQ(only.peer, "bytes of sentencepiece");
  EXPECT_EQ(only.bytes, 15);
  EXPECT_EQ(only.tokens, 15);
  EXPECT_THAT(only.ours_ms, SizeIs(3));
  EXPECT_THAT(only.ours_ms, Each(Gt(0)));
  EXPECT_THAT(only.peer_ms, SizeIs(3));
}

TEST(RunTest, OtherTokensAreNotTimed) {
  TokenizerBench bench = Bench("other");
  bench.peer.emplace_back("--wrong");
  const auto results = CompareTokenizers(bench);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(results->front().failure, HasSubstr("15 tokens, but bytes of"));
  EXPECT_TRUE(results->front().ours_ms.empty());
}

TEST(RunTest, APeerThatLacksALibraryIsSaid) {
  TokenizerBench bench = Bench("lacks");
  bench.tokenizer.clear();
  const absl::Status status = CompareTokenizers(bench).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                               "No module named 'tokenizers'"));
}

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
}  // namespace tandem::tokenizer_suite_test
