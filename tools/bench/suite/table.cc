#include "tools/bench/suite/table.h"

#include <glog/logging.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/text_table.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string WithSpaces(const std::string& name) {
  return absl::StrReplaceAll(name, {{"_", " "}});
}

std::string ColumnHeading(const Table& table, size_t index) {
  const Column& column = table.columns[index];
  if (index == 0 && column.name == "name") return WithSpaces(table.name);
  const std::string name = WithSpaces(column.name);
  return column.unit.empty() ? name : absl::StrCat(name, " ", column.unit);
}

std::string ColumnKey(const Column& column) {
  if (column.unit.empty()) return column.name;
  return absl::StrCat(column.name, "_",
                      absl::StrReplaceAll(absl::AsciiStrToLower(column.unit),
                                          {{"/", "_per_"}}));
}

std::string FractionText(double value, int places) {
  if (places < 0) {
    if (value != 0 && std::abs(value) < 1e-3) {
      return absl::StrFormat("%.1e", value);
    }
    places = std::abs(value) < 10 ? 3 : 2;
  }
  return absl::StrFormat("%.*f", places, value);
}

std::string CellText(const json& figure, const Column& column) {
  if (figure.is_null()) return "";
  if (figure.is_string()) return figure.get<std::string>();
  if (!figure.is_number_float()) return figure.dump();
  return FractionText(figure.get<double>(), column.places);
}

bool IsShown(const std::vector<Table>& tables, const Table& table) {
  return &table == &tables.front() || !table.rows.empty();
}

}  // namespace

void Table::Add(std::vector<json> row) {
  CHECK_EQ(row.size(), columns.size()) << "figures of a row of " << name;
  rows.push_back(std::move(row));
}

std::string TableText(const Table& table) {
  std::vector<std::vector<std::string>> lines(1);
  for (size_t i = 0; i < table.columns.size(); ++i) {
    lines.front().push_back(ColumnHeading(table, i));
  }
  for (const std::vector<json>& row : table.rows) {
    lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      lines.back().push_back(CellText(row[i], table.columns[i]));
    }
  }
  return TextTable(lines);
}

json TablesJson(const std::vector<Table>& tables) {
  json report = json::object();
  for (const Table& table : tables) {
    if (!IsShown(tables, table)) continue;
    json& list = report[table.name] = json::array();
    for (const std::vector<json>& row : table.rows) {
      json figures = json::object();
      for (size_t i = 0; i < row.size(); ++i) {
        if (!row[i].is_null()) figures[ColumnKey(table.columns[i])] = row[i];
      }
      list.push_back(std::move(figures));
    }
  }
  return report;
}

void ShowTables(const std::vector<Table>& tables) {
  for (const Table& table : tables) {
    if (IsShown(tables, table)) absl::PrintF("\n%s", TableText(table));
  }
  std::fflush(stdout);
}

}  // namespace tandem
