// Tables of a benchmark's figures: each column written down once, and shown as
// text for people and as JSON for programs.

#ifndef TANDEM_TOOLS_BENCH_SUITE_TABLE_H_
#define TANDEM_TOOLS_BENCH_SUITE_TABLE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {

struct Column {
  std::string name;       // "ours": words with underscores between
  std::string unit = {};  // "ms", "tokens/s"; empty: none
  // Digits behind the point of a fraction; -1: three below 10, else two.
  int places = -1;
};

struct Table {
  std::string name;
  std::vector<Column> columns;
  // Figures: texts, numbers, or null where there is none.
  std::vector<std::vector<nlohmann::json>> rows = {};

  // Requires a figure for each column.
  void Add(std::vector<nlohmann::json> row);
};

// A line of headings ("ours ms"), in which the name of the table stands above a
// first column that is called "name", and a line for each row.
std::string TableText(const Table& table);

// {TABLE: [{COLUMN: FIGURE, ...}, ...], ...}, where a column's key is its name
// and its unit: "ours_ms", "ours_tokens_per_s". Figures that are null are left
// out, and so are tables without rows but the first.
nlohmann::json TablesJson(const std::vector<Table>& tables);

// Prints the text of each, but of those that TablesJson leaves out.
void ShowTables(const std::vector<Table>& tables);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SUITE_TABLE_H_
