// Key-value table behind a guarded store, and its requests as text.
//
// A request is a list of fields (core/base/text_fields.h): an operation and its
// arguments. An answer is a list as well: "ok" and what was asked for, or
// "error" and why. Meanings are those of c10d's TCPStore.

#ifndef TANDEM_CORE_STORE_GUARD_KEY_VALUES_H_
#define TANDEM_CORE_STORE_GUARD_KEY_VALUES_H_

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

using KeyValues = std::unordered_map<std::string, std::string>;

// Does what a request asks, and returns the answer:
//   set KEY VALUE ...          nothing; any number of pairs
//   get KEY ...                their values; an error where one is not there
//   add KEY NUMBER             the sum
//   append KEY TEXT            nothing
//   compare KEY EXPECTED NEW   the value afterwards
//   check KEY ...              "1" if all are there, else "0"
//   delete KEY                 "1" if it was there, else "0"
//   count                      how many keys there are
// Any text is safe: what is no request has an error for an answer.
std::string AnswerRequest(absl::string_view request, KeyValues* table);

std::string EncodeRequest(const std::vector<std::string>& fields);
// What was asked for; Internal with the server's words for an error.
absl::StatusOr<std::vector<std::string>> DecodeAnswer(absl::string_view answer);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_KEY_VALUES_H_
