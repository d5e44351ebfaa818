// Printable text: what others have written (names in files, messages that hold
// them), without what a terminal would obey.

#ifndef TANDEM_CORE_BASE_PRINTABLE_H_
#define TANDEM_CORE_BASE_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// `text` with every control character (C0, DEL and C1, with one of which each
// escape sequence begins), and every byte that is of no UTF-8 character, as C
// writes it: \n, \t, \r, \x1b.
std::string Printable(absl::string_view text);

// The same of a text of several lines, whose ends stay.
std::string PrintableLines(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_PRINTABLE_H_
