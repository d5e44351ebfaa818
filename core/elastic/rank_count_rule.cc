#include "core/elastic/rank_count_rule.h"

#include "absl/strings/str_cat.h"

namespace tandem {

// With `most` at most.
std::string RankCountRule::GoOnWith(int most, const std::string& why) {
  last_dead_.reset();  // fewer ranks have other numbers
  const std::optional<int> ranks = counts_.AtMost(most);
  if (!ranks.has_value()) {
    return absl::StrCat(why, ", but the job cannot run on fewer than ", ranks_,
                        " (it can on ", counts_.ToString(), ")");
  }
  const int before = ranks_;
  ranks_ = *ranks;
  return absl::StrCat("goes on with ", ranks_, ranks_ == 1 ? " rank" : " ranks",
                      " instead of ", before, ": ", why);
}

std::string RankCountRule::NoteEnd(const FailedAttempt& attempt) {
  if (attempt.started < ranks_) {
    return GoOnWith(
        attempt.started,
        absl::StrCat("no more than ", attempt.started, " could be started"));
  }
  const bool progressed = attempt.progress != progress_;
  progress_ = attempt.progress;
  if (progressed && ranks_ < counts_.most()) {
    return GoOnWith(counts_.most(), "a checkpoint has come since");
  }
  if (!progressed && attempt.first_dead && attempt.first_dead == last_dead_) {
    return GoOnWith(
        ranks_ - 1,
        absl::StrCat("rank ", *attempt.first_dead,
                     " was the first to die in two attempts in a row, without "
                     "a checkpoint in between"));
  }
  last_dead_ = attempt.first_dead;
  return "";
}

}  // namespace tandem
