// Which suite takes which flag, in a table of all; and the tables of figures.

#include "tools/bench/suite/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "core/program/command_line.h"
#include "tools/bench/suite/table.h"

namespace tandem::suite_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<std::string>& Suites() {
  static const auto* const suites = new std::vector<std::string>{
      "ddp",    "fsdp",        "tensor",     "pipeline",
      "hybrid", "gpt",         "gpu",        "data_parallel",
      "safety", "replacement", "checkpoint", "tokenizer",
      "job"};
  return *suites;
}

struct FlagUse {
  std::string flag;
  std::string value;  // another than usual
  std::vector<std::string> suites;
};

std::vector<FlagUse> Uses() {
  const std::vector<std::string> comparisons = {
      "ddp", "fsdp", "tensor", "pipeline", "hybrid", "gpt", "gpu"};
  return {
      {"suite", "ddp", Suites()},
      {"json", "r", Suites()},
      {"rounds", "2", Suites()},
      {"cases",
       "a",
       {"ddp", "fsdp", "tensor", "pipeline", "hybrid", "gpt", "gpu",
        "data_parallel", "safety", "replacement", "job"}},
      {"steps",
       "2",
       {"ddp", "fsdp", "tensor", "pipeline", "hybrid", "gpt", "gpu",
        "data_parallel", "safety", "replacement", "job"}},
      {"peers", "eager", {"ddp", "tensor", "pipeline", "gpt", "gpu"}},
      {"dtypes", "bf16", comparisons},
      {"threads", "2", comparisons},
      {"python",
       "p",
       {"ddp", "fsdp", "tensor", "pipeline", "hybrid", "gpt", "gpu",
        "checkpoint", "tokenizer", "job"}},
      {"ranks", "3", {"ddp", "fsdp", "tensor", "safety", "replacement"}},
      {"devices", "3", {"pipeline", "data_parallel"}},
      {"backend", "gloo", {"ddp", "fsdp", "tensor"}},
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
      EXPECT_EQ(CheckSuiteFlags(suite),
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

Table Example() {
  Table table = {"all_cases",
                 {{"name"},
                  {"peer"},
                  {"ours", "ms"},
                  {"peer", "tokens/s", 0},
                  {"ratio_min", "", 2},
                  {"steps"}}};
  table.Add({"mlp/2x1", "eager", 12.0, 8000.4, 5.0 / 3, 200});
  table.Add({"gpt", "compile", 0.4712, nullptr, 1.0, 7});
  return table;
}

TEST(TableText, HasAHeadingForEachColumnAndALineForEachRow) {
  EXPECT_EQ(TableText(Example()),
            "all cases  peer     ours ms  peer tokens/s  ratio min  steps\n"
            "mlp/2x1    eager      12.00           8000       1.67    200\n"
            "gpt        compile    0.471                      1.00      7\n");
}

TEST(TableText, HasMorePlacesWhereFractionsAreSmall) {
  Table table = {"t", {{"state"}, {"ms"}, {"apart"}}};
  table.Add({"one", 26.3, 0.00012});
  table.Add({"two", -0.5, 0.0});
  const std::string text = TableText(table);
  EXPECT_THAT(text, HasSubstr("state"));  // not the table's name
  EXPECT_THAT(text, HasSubstr("26.30"));
  EXPECT_THAT(text, HasSubstr("-0.500"));
  EXPECT_THAT(text, HasSubstr("1.2e-04"));
  EXPECT_THAT(text, HasSubstr("0.000"));
}

TEST(TablesJson, HasTheSameFiguresInFull) {
  const json rows = TablesJson({Example()}).at("all_cases");
  ASSERT_EQ(rows.size(), 2u);
  const json first = {{"name", "mlp/2x1"},    {"peer", "eager"},
                      {"ours_ms", 12.0},      {"peer_tokens_per_s", 8000.4},
                      {"ratio_min", 5.0 / 3}, {"steps", 200}};
  EXPECT_EQ(rows[0], first);
  const json second = {{"name", "gpt"},
                       {"peer", "compile"},
                       {"ours_ms", 0.4712},
                       {"ratio_min", 1.0},
                       {"steps", 7}};
  EXPECT_EQ(rows[1], second);
}

TEST(TablesJson, LeavesOutTablesWithoutRowsButTheFirst) {
  const Table empty = {"first", {{"name"}}};
  const Table other = {"other", {{"name"}}};
  const std::vector<Table> tables = {empty, other, Example()};
  const json report = TablesJson(tables);
  EXPECT_EQ(report.at("first"), json::array());
  EXPECT_FALSE(report.contains("other"));
  EXPECT_EQ(report.at("all_cases").size(), 2u);
  testing::internal::CaptureStdout();
  ShowTables(tables);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_THAT(shown, HasSubstr("\nfirst\n\nall cases"));
  EXPECT_THAT(shown, Not(HasSubstr("other")));
}

TEST(TableDeathTest, ARowHasAFigureForEachColumn) {
  Table table = Example();
  EXPECT_DEATH(table.Add({"a", "b"}), "row of all_cases");
}

}  // namespace
}  // namespace tandem::suite_test
