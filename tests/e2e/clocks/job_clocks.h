// The wall clocks of a job's processes, which a test sets while the job runs.
// For tests.

#ifndef TANDEM_TESTS_E2E_CLOCKS_JOB_CLOCKS_H_
#define TANDEM_TESTS_E2E_CLOCKS_JOB_CLOCKS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/clocks/clock_page.h"
#include "tests/e2e/program.h"

namespace tandem {

// Not thread-safe.
class JobClocks {
 public:
  // All are the host's.
  JobClocks();
  ~JobClocks();
  JobClocks(const JobClocks&) = delete;
  JobClocks& operator=(const JobClocks&) = delete;

  // What a program is started with, to have these clocks.
  ProgramOptions Options(ProgramOptions options = ProgramOptions()) const;

  // Sets all forwards by so many hours, or back.
  void Jump(int hours);

  // Has all jump every 100 ms from now on, by the next of `hours`, and by the
  // first after the last. Each process is one ahead of the rank before it: they
  // jump apart.
  void Start(const std::vector<int>& hours);
  // They stay as they are.
  void Stop();

  // How many jumps the process of a rank has seen.
  int64_t JumpsSeen(int rank) const;

 private:
  std::string path_;
  ClockPage* page_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_CLOCKS_JOB_CLOCKS_H_
