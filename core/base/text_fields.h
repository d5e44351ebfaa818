// Several texts in one, whatever they hold: netstrings ("5:hello2:me").

#ifndef TANDEM_CORE_BASE_TEXT_FIELDS_H_
#define TANDEM_CORE_BASE_TEXT_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// Adds `field` at the end of `text`.
void AppendField(absl::string_view field, std::string* text);
void AppendNumber(int64_t number, std::string* text);

// Takes the first field off `text`, into which it points. Nothing, and `text`
// as it was, if no field stands there.
std::optional<absl::string_view> TakeField(absl::string_view* text);

// The same of one that is a number.
std::optional<int> TakeNumber(absl::string_view* text);
std::optional<int64_t> TakeInt64(absl::string_view* text);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_TEXT_FIELDS_H_
