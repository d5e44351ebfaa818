// Suites of //tools:bench: their flags, one list for all, and what each suite
// gives.

#ifndef TANDEM_TOOLS_BENCH_SUITE_SUITE_H_
#define TANDEM_TOOLS_BENCH_SUITE_SUITE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/bench/suite/table.h"

namespace tandem {

// Values of the flags, by their names (flags.def says what they are).
struct BenchFlags {
#define BENCH_FLAG(type, name, usual, suites, help) type name = usual;
#include "tools/bench/suite/flags.def"
};

// What the command line gave, once it is parsed.
BenchFlags BenchFlagsGiven();

// InvalidArgument names a flag that was given, though this suite does not take
// it.
absl::Status CheckSuiteFlags(const std::string& suite);

struct SuiteReport {
  std::vector<Table> tables;
  // What went wrong although there are figures, for the exit code.
  absl::Status status = absl::OkStatus();
};

// Runs a suite with these flags, in a scratch folder. InvalidArgument names a
// flag whose value it does not take.
using RunSuite = absl::StatusOr<SuiteReport>(const BenchFlags& flags,
                                             const std::string& folder);

// Progress of a benchmark whose parts take about equally long: a line for each
// of them on stderr. Not thread-safe.
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

#endif  // TANDEM_TOOLS_BENCH_SUITE_SUITE_H_
