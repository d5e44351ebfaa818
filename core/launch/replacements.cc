#include "core/launch/replacements.h"

#include <algorithm>

namespace tandem {
namespace {

using Due = std::pair<const int, Replacements::Clock::time_point>;

bool ComesBefore(const Due& a, const Due& b) { return a.second < b.second; }

}  // namespace

int Replacements::LifeOf(int local_rank) const {
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
