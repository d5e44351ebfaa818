// Markup: text as HTML and XML have it (SVG is XML), whoever wrote it.

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

}  // namespace tandem

#endif  // TANDEM_CORE_DRAWING_MARKUP_H_
