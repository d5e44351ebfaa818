#include "core/shm/memory/states.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/some_of.h"

namespace tandem {
namespace {

std::vector<int> RanksIn(const ShmSegment& segment, ShmRankState state,
                         absl::FunctionRef<bool(int rank)> matters) {
  std::vector<int> ranks;
  for (int r = 0; r < segment.size(); ++r) {
    if (segment.state(r) == state && matters(r)) ranks.push_back(r);
  }
  return ranks;
}

std::string GaveUp(const ShmSegment& segment, int rank) {
  const std::string reason = segment.reason(rank);
  return absl::StrCat(" gave up", reason.empty() ? "" : ": ", reason);
}

}  // namespace

std::string NamesOfRanks(const ShmSegment& segment,
                         const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) {
    names.push_back(absl::StrCat(segment.name(rank), " (pid ",
                                 segment.page(rank).pid.load(), ")"));
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", SomeOf(names));
}

absl::Status CheckPresence(const ShmSegment& segment, int me,
                           absl::FunctionRef<bool(int rank)> matters) {
  if (segment.state(me) == ShmRankState::kGaveUp) {
    return absl::UnavailableError(
        absl::StrCat("this rank", GaveUp(segment, me)));
  }
  const std::vector<int> died = RanksIn(segment, ShmRankState::kDied, matters);
  if (!died.empty()) {
    return absl::UnavailableError(
        absl::StrCat(NamesOfRanks(segment, died), " died"));
  }
  const std::vector<int> gave_up =
      RanksIn(segment, ShmRankState::kGaveUp, matters);
  if (!gave_up.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "rank ", segment.name(gave_up[0]), GaveUp(segment, gave_up[0])));
  }
  const std::vector<int> left = RanksIn(segment, ShmRankState::kLeft, matters);
  if (left.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(NamesOfRanks(segment, left), " left the group"));
}

}  // namespace tandem
