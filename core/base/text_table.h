// Rows of words as lines of text with aligned columns.

#ifndef TANDEM_CORE_BASE_TEXT_TABLE_H_
#define TANDEM_CORE_BASE_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace tandem {

// A line for each row, columns two spaces apart; rows may be of any length. A
// column whose cells below the first row all begin with a number (or are empty,
// or "-") is aligned right, any other left. No spaces at the ends of lines.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_TEXT_TABLE_H_
