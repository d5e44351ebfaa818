#include "core/base/text_table.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem {
namespace {

struct Column {
  size_t width = 0;
  bool right = true;
};

// "2", "-2.5 %" and "1 to 2" are, "2x1" is a name.
bool IsNumber(const std::string& cell) {
  if (cell.empty() || cell == "-") return true;
  const size_t begin = cell.front() == '-' ? 1 : 0;
  const size_t end = cell.find_first_not_of("0123456789.,", begin);
  return end != begin && (end == cell.npos || !absl::ascii_isalpha(cell[end]));
}

std::vector<Column> MakeColumns(
    const std::vector<std::vector<std::string>>& rows) {
  std::vector<Column> columns;
  for (const auto& row : rows) {
    columns.resize(std::max(columns.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      columns[i].width = std::max(columns[i].width, row[i].size());
      if (&row != &rows.front() && !IsNumber(row[i])) columns[i].right = false;
    }
  }
  return columns;
}

std::string Padded(const std::string& cell, const Column& column) {
  const std::string spaces(column.width - cell.size(), ' ');
  return column.right ? spaces + cell : cell + spaces;
}

}  // namespace

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  const std::vector<Column> columns = MakeColumns(rows);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, i > 0 ? "  " : "", Padded(row[i], columns[i]));
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace tandem
