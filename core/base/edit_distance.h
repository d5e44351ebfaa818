// Edit distance of two words, to suggest what a user may have meant, and lists
// of names to choose from.

#ifndef TANDEM_CORE_BASE_EDIT_DISTANCE_H_
#define TANDEM_CORE_BASE_EDIT_DISTANCE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// The number of characters to insert, remove or replace to make `b` of `a`
// (Levenshtein's distance).
int EditDistance(absl::string_view a, absl::string_view b);

// The name of `known` that `given` may have been meant for: the only one that
// begins or ends with it, or one that it abbreviates ("lr": learning_rate),
// else the nearest; empty: none is near.
std::string NearestName(absl::string_view given,
                        const std::vector<std::string>& known);

// The names to choose from, for an error about `given`: all, in their order, if
// they are at most eight, else the eight nearest to it and how many more there
// are: "gpt2, gpt_tiny, ..., toy and 19 more". `all`: where the rest is listed,
// which is said in parentheses if any is left out ("--help=model lists all").
std::string NamesNear(absl::string_view given,
                      const std::vector<std::string>& known,
                      absl::string_view all = "");

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_EDIT_DISTANCE_H_
