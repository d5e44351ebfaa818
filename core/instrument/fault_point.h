// Fault points: named places where a test can have a program fail, so that a
// fault comes at a known moment and not after a sleep.
//
//   TANDEM_FAULT='point=bucket:1,rank=2,step=3,action=kill'
//
// Several faults stand with ';' between them. Keys, in any order:
//   point   the place's name; needed
//   rank    only on this rank; without it on every one
//   step    only in this step; without it in every one
//   action  needed:
//             kill           SIGKILL to this process
//             stop           SIGSTOP to this process: it freezes
//             exit:CODE      ends at once with that code, 0 to 255
//             fail           the place returns an error
//             delay:SECONDS  sleeps there, at most 86400 s
//
// A test can also have a function of its own called there (Action::kCall).

#ifndef TANDEM_CORE_INSTRUMENT_FAULT_POINT_H_
#define TANDEM_CORE_INSTRUMENT_FAULT_POINT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct Fault {
  enum class Action { kKill, kStop, kExit, kFail, kDelay, kCall };

  std::string point;
  std::optional<int> rank;
  std::optional<int64_t> step;
  Action action = Action::kFail;
  int exit_code = 0;         // of kExit
  double delay_seconds = 0;  // of kDelay
  // The function of kCall, which text cannot ask for; the place returns what it
  // returns. It runs on the thread that is there, which may be several at a
  // time.
  std::function<absl::Status()> call = nullptr;
};

// InvalidArgument names the part of `text` that is wrong and what may stand
// there. Empty text asks for nothing.
absl::StatusOr<std::vector<Fault>> ParseFaults(absl::string_view text);

// Asks for these faults and for no others. For programs, once, before the first
// fault point; not while another thread is at one.
void ArmFaults(std::vector<Fault> faults);
// The same with what TANDEM_FAULT says; the error names the variable.
absl::Status ArmFaultsFromEnvironment();

// Where this process is: to be told before the first fault point of each step.
// It holds for the process, not for a thread: hooks of autograd run on threads
// of their own.
void SetFaultContext(int rank, int64_t step);

namespace fault_internal {
extern std::atomic<bool> armed;
absl::Status Pass(absl::string_view point, int64_t index);
}  // namespace fault_internal

// A place's name, with "bucket" and 1 for "bucket:1"; -1 for none. Does nothing
// unless ArmFaults has asked for a fault there; then the error of "fail" is
// Internal and names the place. Thread-safe.
inline absl::Status FaultPoint(absl::string_view point, int64_t index = -1) {
  if (!fault_internal::armed.load(std::memory_order_relaxed)) {
    return absl::OkStatus();
  }
  return fault_internal::Pass(point, index);
}

}  // namespace tandem

#endif  // TANDEM_CORE_INSTRUMENT_FAULT_POINT_H_
