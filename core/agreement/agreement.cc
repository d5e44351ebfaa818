#include "core/agreement/agreement.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/short_list.h"
#include "core/base/text_fields.h"
#include "core/digest/sha256.h"

namespace tandem {
namespace {

// A message has at most so many of each kind.
constexpr size_t kMostDifferences = 8;
constexpr size_t kMostValues = 4;
constexpr size_t kMostRanks = 8;
// So many bytes of a value, and of what is the same before they differ.
constexpr size_t kMostText = 72;
constexpr size_t kSameText = 16;

constexpr char kNotGiven[] = "not given";

using Value = std::optional<std::string>;

// The ranks that have each value of one name, in the order of the first rank.
using RanksOfValues = std::vector<std::pair<Value, std::vector<int>>>;

RanksOfValues GroupByValue(const std::vector<NamedValues>& by_rank,
                           const std::string& name) {
  RanksOfValues groups;
  std::map<Value, size_t> place;
  for (size_t r = 0; r < by_rank.size(); ++r) {
    const auto found = by_rank[r].find(name);
    const Value value = found == by_rank[r].end() ? Value() : found->second;
    const auto [at, is_new] = place.emplace(value, groups.size());
    if (is_new) groups.push_back({value, {}});
    groups[at->second].second.push_back(static_cast<int>(r));
  }
  return groups;
}

// Where the texts of the groups begin to differ.
size_t CommonPrefix(const RanksOfValues& groups) {
  std::optional<size_t> common;
  const std::string& first = groups[0].first.value_or("");
  for (const auto& [value, ranks] : groups) {
    if (!value.has_value()) continue;
    const auto differs =
        std::mismatch(first.begin(), first.end(), value->begin(), value->end());
    const size_t length = static_cast<size_t>(differs.first - first.begin());
    common = std::min(common.value_or(length), length);
  }
  return common.value_or(0);
}

// A long text from shortly before the place where it differs.
std::string Shown(const Value& value, size_t differs_at) {
  if (!value.has_value()) return kNotGiven;
  if (value->empty()) return "(empty)";
  if (value->size() <= kMostText) return absl::CEscape(*value);
  const size_t begin = differs_at > kSameText ? differs_at - kSameText : 0;
  const std::string part = value->substr(begin, kMostText);
  return absl::StrCat(begin > 0 ? "..." : "", absl::CEscape(part),
                      begin + part.size() < value->size() ? "..." : "");
}

// "rank 3", "ranks 1, 2", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
std::string Ranks(const std::vector<int>& ranks,
                  const std::vector<int>& names) {
  std::vector<int> named;
  for (int rank : ranks) {
    named.push_back(names.empty() ? rank : names[static_cast<size_t>(rank)]);
  }
  return RankList(named, kMostRanks);
}

std::string DescribeDifference(const std::string& name,
                               const RanksOfValues& groups,
                               const std::vector<int>& names) {
  const size_t differs_at = CommonPrefix(groups);
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : groups) {
    if (parts.size() == kMostValues) {
      parts.push_back("others elsewhere");
      break;
    }
    parts.push_back(
        absl::StrCat(Shown(value, differs_at), " on ", Ranks(ranks, names)));
  }
  return absl::StrCat(name, " is ", absl::StrJoin(parts, ", "));
}

}  // namespace

std::string EncodeValues(const NamedValues& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    absl::StrAppend(&text, absl::CEscape(name), "\t", absl::CEscape(value),
                    "\n");
  }
  return text;
}

absl::StatusOr<NamedValues> DecodeValues(absl::string_view text) {
  NamedValues values;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '\t');
    std::string name, value;
    if (parts.size() != 2 || !absl::CUnescape(parts[0], &name) ||
        !absl::CUnescape(parts[1], &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a value with its name: ", absl::CEscape(line)));
    }
    values[name] = value;
  }
  return values;
}

std::string ValuesFingerprint(const NamedValues& values) {
  Sha256 hash;
  hash.Update(EncodeValues(values));
  return hash.HexDigest();
}

absl::Status CompareValues(const std::vector<NamedValues>& by_rank,
                           const std::vector<int>& names,
                           absl::string_view what) {
  std::set<std::string> all;
  for (const NamedValues& values : by_rank) {
    for (const auto& each : values) all.insert(each.first);
  }
  std::vector<std::string> differences;
  size_t more = 0;
  for (const std::string& name : all) {
    const RanksOfValues groups = GroupByValue(by_rank, name);
    if (groups.size() == 1) continue;
    if (differences.size() == kMostDifferences) {
      ++more;
    } else {
      differences.push_back(DescribeDifference(name, groups, names));
    }
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ranks' ", what, " differ: ", absl::StrJoin(differences, "; "),
      more > 0 ? absl::StrCat("; and ", more, " more") : "",
      "; give all ranks the same"));
}

std::string EncodeStatus(const absl::Status& status) {
  std::string text;
  AppendNumber(static_cast<int>(status.code()), &text);
  AppendField(status.message(), &text);
  return text;
}

absl::Status Verdict(const std::vector<std::string>& by_rank) {
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    absl::string_view text = by_rank[rank];
    const std::optional<int> code = TakeNumber(&text);
    const std::optional<absl::string_view> message = TakeField(&text);
    if (!code.has_value() || !message.has_value()) {
      return absl::InternalError(
          absl::StrCat("rank ", rank, " has told something else than whether ",
                       "it has succeeded"));
    }
    if (*code == 0) continue;
    return absl::Status(static_cast<absl::StatusCode>(*code),
                        by_rank.size() == 1
                            ? std::string(*message)
                            : absl::StrCat("rank ", rank, ": ", *message));
  }
  return absl::OkStatus();
}

}  // namespace tandem
