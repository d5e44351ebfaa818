// JSON error: where and why a text of a user's file is no JSON.

#ifndef TANDEM_CORE_BASE_JSON_ERROR_H_
#define TANDEM_CORE_BASE_JSON_ERROR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// To be put behind "it is no JSON": ": line 3 has 'Infinity'", ": line 3 has
// '}', expected string literal". Empty for a text that is JSON.
std::string JsonError(absl::string_view text);

// The same of one line of a file, which is a text by itself: ": byte 12 has
// 'Infinity'".
std::string JsonErrorInLine(absl::string_view line);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_JSON_ERROR_H_
