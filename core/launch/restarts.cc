#include "core/launch/restarts.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::StatusOr<int> CountIn(const Environment& env, const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<int> count, env.GetInt(name));
  if (count.value_or(0) >= 0) return count.value_or(0);
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", *count, " must be at least 0"));
}

}  // namespace

absl::StatusOr<RestartCount> ReadRestartCount(const Environment& env) {
  RestartCount count;
  TANDEM_ASSIGN_OR_RETURN(count.done,
                          CountIn(env, "TORCHELASTIC_RESTART_COUNT"));
  TANDEM_ASSIGN_OR_RETURN(count.most,
                          CountIn(env, "TORCHELASTIC_MAX_RESTARTS"));
  return count;
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestDelay = std::chrono::minutes(1);

}  // namespace

void Restarts::NoteEnd(int attempt, std::chrono::duration<double> lasted,
                       const std::string& cause) {
  history_.push_back(absl::StrFormat("attempt %d of %d, after %.1f s: %s",
                                     attempt + 1, max_restarts_ + 1,
                                     lasted.count(), cause));
}

void Restarts::NoteChange(const std::string& change) {
  if (!history_.empty()) absl::StrAppend(&history_.back(), "; ", change);
}

milliseconds Restarts::DelayBefore(int attempt) const {
  milliseconds delay = delay_;
  for (int i = 1; i < attempt && delay < kLongestDelay; ++i) delay *= 2;
  return std::min(delay, kLongestDelay);
}

namespace {

using Due = std::pair<const int, Replacements::Clock::time_point>;

bool ComesBefore(const Due& a, const Due& b) { return a.second < b.second; }

}  // namespace

int Replacements::RankLife(int local_rank) const {
  const auto found = lives_.find(local_rank);
  return found == lives_.end() ? 0 : found->second;
}

std::chrono::milliseconds Replacements::NoteDeath(int local_rank,
                                                  Clock::time_point now,
                                                  const std::string& cause) {
  history_.push_back(cause);
  ++lives_[local_rank];
  const std::chrono::milliseconds delay = restarts_.DelayBefore(++done_);
  due_[local_rank] = now + delay;
  return delay;
}

std::optional<Replacements::Clock::time_point> Replacements::NextDue() const {
  const auto first = std::min_element(due_.begin(), due_.end(), ComesBefore);
  if (first == due_.end()) return std::nullopt;
  return first->second;
}

std::optional<int> Replacements::TakeDue(Clock::time_point now) {
  const auto first = std::min_element(due_.begin(), due_.end(), ComesBefore);
  if (first == due_.end() || first->second > now) return std::nullopt;
  const int local_rank = first->first;
  due_.erase(first);
  return local_rank;
}

}  // namespace tandem
