// Straggler watch: says by name which ranks keep the others waiting.

#ifndef TANDEM_CORE_HEALTH_STRAGGLER_WATCH_H_
#define TANDEM_CORE_HEALTH_STRAGGLER_WATCH_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/health/group_member.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace tandem {

// Waits for works of one group of ranks. While a rank waits long it leaves a
// note on the store; those without a note have not begun to wait and are late.
// The first of the ranks that wait to have done so beyond the threshold logs a
// warning, and another line when the late ranks have come. The others are
// silent: a person sees two lines for a collective, however many ranks wait.
//
// Costs nothing while ranks come in time, has no thread, and needs of a backend
// only that Work::wait(timeout) throws when the timeout passes, while the work
// goes on. When the store does not answer, each rank says so for itself, once,
// with who serves it, and asks no more. Not thread-safe.
class StragglerWatch {
 public:
  StragglerWatch(GroupMember member, std::chrono::milliseconds threshold);

  // Waits for the end of `work`, the group's collective of that number, and
  // returns what its wait() throws. `what` says what it is. The warning comes
  // an eighth after the threshold, for it is then known who waits.
  absl::Status Wait(c10d::Work& work, int64_t sequence,
                    absl::FunctionRef<std::string()> what);

 private:
  struct Finding {
    bool mine = false;      // is it for this rank to tell?
    std::vector<int> late;  // their names, sorted as the ranks are
  };

  void LeaveNote(int64_t sequence);
  Finding LookForLateRanks(int64_t sequence);

  const GroupMember member_;
  std::chrono::milliseconds threshold_;
  absl::Status silence_;  // what the store's last answer was, if not an answer
};

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_STRAGGLER_WATCH_H_
