// Short list for a message: the first few of a list, and how many more there
// are.

#ifndef TANDEM_CORE_BASE_SHORT_LIST_H_
#define TANDEM_CORE_BASE_SHORT_LIST_H_

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace tandem {

// "a, b, c, d, e, f, g, h and 52 more". `list`: a container of what can be
// joined. Whatever separates them also stands before the "and", unless it is a
// comma: "a; b; and 3 more".
template <typename List>
std::string ShortList(const List& list, size_t most = 8,
                      absl::string_view separator = ", ") {
  const auto count =
      static_cast<size_t>(std::distance(std::begin(list), std::end(list)));
  const size_t shown = std::min(count, most);
  std::string text = absl::StrJoin(
      std::begin(list),
      std::next(std::begin(list), static_cast<std::ptrdiff_t>(shown)),
      separator);
  if (shown == count) return text;
  absl::StrAppend(&text, separator == ", " ? " " : separator, "and ",
                  count - shown, " more");
  return text;
}

// "rank 3", "ranks 1, 2"; of more than `most` the first, and how many more
// there are.
inline std::string RankList(const std::vector<int>& ranks, size_t most = 8) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      ShortList(ranks, most));
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_SHORT_LIST_H_
