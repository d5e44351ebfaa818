// Progress lines of a benchmark, on stderr.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_PROGRESS_H_
#define TANDEM_TOOLS_BENCH_PROCESS_PROGRESS_H_

#include <chrono>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem {

// A benchmark's, whose parts take about equally long: a line for each of them.
// Not thread-safe.
class BenchProgress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit BenchProgress(int parts, Clock::time_point now = Clock::now())
      : parts_(parts), start_(now) {}

  // The next part begins.
  void Begin(absl::string_view what, Clock::time_point now = Clock::now());

 private:
  int parts_;
  int begun_ = 0;
  Clock::time_point start_;
};

// "3 of 9, about 6 min left: WHAT", where two took the `past`; the first has
// no estimate.
std::string ProgressLine(int part, int parts, absl::Duration past,
                         absl::string_view what);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_PROGRESS_H_
