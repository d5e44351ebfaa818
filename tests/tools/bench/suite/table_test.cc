#include "tools/bench/suite/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::table_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

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
}  // namespace tandem::table_test
