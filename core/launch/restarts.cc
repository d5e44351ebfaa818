#include "core/launch/restarts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem {
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

}  // namespace tandem
