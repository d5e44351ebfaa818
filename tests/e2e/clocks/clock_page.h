// Clock page: memory that a test shares with the processes of a job, whose
// wall clocks it sets there. For tests.

#ifndef TANDEM_TESTS_E2E_CLOCKS_CLOCK_PAGE_H_
#define TANDEM_TESTS_E2E_CLOCKS_CLOCK_PAGE_H_

#include <atomic>
#include <cstdint>

namespace tandem {

// The path of a file with a ClockPage.
constexpr char kClockPageVariable[] = "TANDEM_TEST_CLOCK_PAGE";

constexpr int kClockProcesses = 8;

struct ClockPage {
  struct Process {
    // Its wall clock minus the host's, in seconds.
    std::atomic<int64_t> offset;
    // How often it has read another offset than the time before.
    std::atomic<int64_t> jumps_seen;
  };
  // By RANK + 1; the first is the launcher's, which has none.
  Process processes[kClockProcesses];
};

static_assert(std::atomic<int64_t>::is_always_lock_free);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_CLOCKS_CLOCK_PAGE_H_
