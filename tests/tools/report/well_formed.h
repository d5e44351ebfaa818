// Well-formedness of markup, as XML defines it. For tests.

#ifndef TANDEM_TESTS_TOOLS_REPORT_WELL_FORMED_H_
#define TANDEM_TESTS_TOOLS_REPORT_WELL_FORMED_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// What keeps `text` from being well-formed, with what stands there: a tag that
// is not ended, or by another; an attribute without quotes, or there twice; an
// & that begins no reference to a character; a control character. Empty: it is.
// (Neither comments nor sections of another kind are known: pages have none.)
std::string MarkupError(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_TESTS_TOOLS_REPORT_WELL_FORMED_H_
