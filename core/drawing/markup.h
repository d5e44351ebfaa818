// Markup: text as HTML, XML (SVG is XML) and Markdown have it, whoever wrote
// it.

#ifndef TANDEM_CORE_DRAWING_MARKUP_H_
#define TANDEM_CORE_DRAWING_MARKUP_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// `text` so that it stands for itself between tags and in a quoted attribute of
// either language: & < > " ' as character references; what neither may have
// (control characters, bytes that are no UTF-8) as core/base/printable.h writes
// it, and U+FFFE and U+FFFF as U+FFFD.
std::string EscapedMarkup(absl::string_view text);

// `text` so that it is one cell of a table in Markdown, in UTF-8: its lines end
// in <br>, and bytes that are no UTF-8 are U+FFFD.
std::string MarkdownCell(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_CORE_DRAWING_MARKUP_H_
