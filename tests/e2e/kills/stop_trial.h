// Stop trial: a job that is sent a signal at some moment, in one of the manners
// of those who stop jobs, and must end with a checkpoint. For tests.

#ifndef TANDEM_TESTS_E2E_KILLS_STOP_TRIAL_H_
#define TANDEM_TESTS_E2E_KILLS_STOP_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// The processes that are signalled, and how often.
struct StopManner {
  std::string name;
  bool launcher = true;
  int ranks = 0;         // so many of the job's; they come after the launcher
  int between_ms = 0;    // the launcher and the ranks
  int times = 1;         // in a row, 50 ms apart
  bool hang_up = false;  // SIGHUP follows at once
  std::vector<std::string> flags = {};  // of the job, beside its usual ones
};
const std::vector<StopManner>& StopManners();

struct StopTrial {
  const StopManner* manner;
  int signal = 0;
  double seconds = 0;  // after the first step has been shown
};

// The same for the same numbers: manners and signals in turn, random moments.
std::vector<StopTrial> MakeStopTrials(int count, uint64_t seed);

// "SIGTERM to the launcher and all ranks, after 0.42 s".
std::string Describe(const StopTrial& trial);

// gpt_tiny on two ranks. Empty: it has ended with the signal's exit code and a
// checkpoint that is whole; else what went wrong.
std::string RunStopTrial(const StopTrial& trial);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_KILLS_STOP_TRIAL_H_
