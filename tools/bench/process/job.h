// Jobs that a benchmark times as their user would: whole programs, from start
// to end.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_JOB_H_
#define TANDEM_TOOLS_BENCH_PROCESS_JOB_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/environment.h"

namespace tandem {

struct JobEnd {
  double seconds = 0;  // from the program's start
  // Until a line of `out` had the mark in it; 0: none had.
  double seconds_to_mark = 0;
  std::string out;
  std::string err;
};

// Runs `command`, of which the first is the program's path. Internal, with what
// it said on stderr, where it ends with another code than 0, or not within
// `timeout`: it is killed then.
absl::StatusOr<JobEnd> RunJob(const std::vector<std::string>& command,
                              const Environment& environment,
                              std::chrono::milliseconds timeout,
                              const std::string& mark = "");

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_JOB_H_
