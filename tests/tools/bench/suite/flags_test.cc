// Which suite takes which flag: the whole table.

#include "tools/bench/suite/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "core/program/command_line.h"

namespace tandem::suite_flags_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::string>& Suites() {
  static const auto* const suites = new std::vector<std::string>{
      "ddp",           "pipeline", "hybrid",      "gpt",        "gpu",
      "data_parallel", "safety",   "replacement", "checkpoint", "tokenizer"};
  return *suites;
}

struct FlagUse {
  std::string flag;
  std::string value;  // another than usual
  std::vector<std::string> suites;
};

std::vector<FlagUse> Uses() {
  const std::vector<std::string> comparisons = {"ddp", "pipeline", "hybrid",
                                                "gpt", "gpu"};
  return {
      {"suite", "ddp", Suites()},
      {"json", "r", Suites()},
      {"rounds", "2", Suites()},
      {"cases",
       "a",
       {"ddp", "pipeline", "hybrid", "gpt", "gpu", "data_parallel", "safety",
        "replacement"}},
      {"steps",
       "2",
       {"ddp", "pipeline", "hybrid", "gpt", "gpu", "data_parallel", "safety",
        "replacement"}},
      {"peers", "eager", {"ddp", "pipeline", "gpt", "gpu"}},
      {"dtypes", "bf16", comparisons},
      {"threads", "2", comparisons},
      {"python",
       "p",
       {"ddp", "pipeline", "hybrid", "gpt", "gpu", "checkpoint", "tokenizer"}},
      {"ranks", "3", {"ddp", "safety", "replacement"}},
      {"devices", "3", {"pipeline", "data_parallel"}},
      {"backend", "gloo", {"ddp"}},
      {"startup", "false", {"ddp"}},
      {"profile", "true", {"ddp"}},
      {"reproducible", "false", {"hybrid"}},
      {"batch_size", "2", {"gpt", "gpu"}},
      {"tokens", "2", {"gpt", "gpu"}},
      {"image_size", "2", {"gpu"}},
      {"device", "cpu", {"gpu"}},
      {"allow_tf32", "true", {"gpu"}},
      {"save_every", "2", {"safety", "replacement"}},
      {"dies_at", "2", {"replacement"}},
      {"megabytes", "16", {"checkpoint"}},
      {"output", "o", {"checkpoint"}},
      {"input", "i", {"tokenizer"}},
      {"tokenizer", "t", {"tokenizer"}},
      {"vocabulary", "512", {"tokenizer"}},
  };
}

void Give(const FlagUse& use) {
  absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(use.flag);
  ASSERT_NE(flag, nullptr) << use.flag;
  std::string error;
  ASSERT_TRUE(flag->ParseFrom(use.value, &error)) << use.flag << ": " << error;
}

TEST(BenchFlags, EachIsRefusedByNameWhereASuiteDoesNotTakeIt) {
  for (const FlagUse& use : Uses()) {
    const absl::FlagSaver before;
    Give(use);
    for (const std::string& suite : Suites()) {
      const bool is_taken = std::find(use.suites.begin(), use.suites.end(),
                                      suite) != use.suites.end();
      EXPECT_EQ(CheckFlagsOf(suite),
                is_taken ? absl::OkStatus()
                         : absl::InvalidArgumentError(absl::StrCat(
                               "--", use.flag, "=", use.value,
                               " was given, but --suite=", suite,
                               " does not take it: leave it out")));
    }
  }
}

TEST(BenchFlags, AreAllInTheTable) {
  std::set<std::string> there;
  for (const auto& [name, value] : FlagValues()) there.insert(name);
  std::set<std::string> in_table;
  for (const FlagUse& use : Uses()) in_table.insert(use.flag);
  EXPECT_EQ(there, in_table);
}

TEST(BenchFlags, AreTakenAsTheyWereGiven) {
  const BenchFlags usual = BenchFlagsGiven();
  EXPECT_THAT(usual.cases, IsEmpty());
  EXPECT_THAT(usual.dtypes, ElementsAre("fp32"));
  EXPECT_FALSE(usual.rounds.has_value());
  EXPECT_TRUE(usual.startup);
  EXPECT_EQ(usual.device, "cuda");
  const absl::FlagSaver before;
  Give({"rounds", "3", {}});
  Give({"cases", "a,b", {}});
  Give({"startup", "false", {}});
  const BenchFlags given = BenchFlagsGiven();
  EXPECT_EQ(given.rounds, 3);
  EXPECT_THAT(given.cases, ElementsAre("a", "b"));
  EXPECT_FALSE(given.startup);
}

}  // namespace
}  // namespace tandem::suite_flags_test
