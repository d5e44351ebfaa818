// The first failure among ranks that are about to form a group, on their store.

#ifndef TANDEM_CORE_FAILURE_NOTE_H_
#define TANDEM_CORE_FAILURE_NOTE_H_

#include <chrono>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/store.h"

namespace tandem {

// Ranks that make a group wait for each other before there is a group that one
// could break: who fails then leaves a note, and who waits looks for it.
class FailureNote {
 public:
  using Clock = std::chrono::steady_clock;

  // `key` is the group's own, on `store`.
  FailureNote(StorePtr store, std::string key)
      : store_(std::move(store)), key_(std::move(key)) {}

  // The first note is kept: it is the cause. Takes 2 s at most.
  void Tell(const std::string& what) const;

  // Unavailable, with the note, when there is one.
  absl::Status Check() const;

  // Calls `step`, which is to wait until the time that it is given, for as long
  // as it returns DeadlineExceeded: until `deadline`, or until there is a note.
  absl::Status Await(
      Clock::time_point deadline,
      absl::FunctionRef<absl::Status(Clock::time_point)> step) const;

 private:
  const StorePtr store_;
  const std::string key_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_FAILURE_NOTE_H_
