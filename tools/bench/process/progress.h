// Progress lines of a benchmark, on stderr.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_PROGRESS_H_
#define TANDEM_TOOLS_BENCH_PROCESS_PROGRESS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem {

// A benchmark's, whose parts take about equally long. Not thread-safe.
class BenchProgress {
 public:
  // Of so many parts, from now on.
  explicit BenchProgress(int parts) : parts_(parts), start_(absl::Now()) {}

  // The next part begins.
  void Begin(absl::string_view what);

 private:
  int parts_;
  int begun_ = 0;
  absl::Time start_;
};

// "3 of 9, about 6 min left: WHAT", where two took the `past`; the first has
// no estimate.
std::string ProgressLine(int part, int parts, absl::Duration past,
                         absl::string_view what);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_PROGRESS_H_
