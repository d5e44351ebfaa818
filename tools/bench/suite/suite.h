// Suites of //tools:bench: what each of them gives.

#ifndef TANDEM_TOOLS_BENCH_SUITE_SUITE_H_
#define TANDEM_TOOLS_BENCH_SUITE_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/suite/flags.h"
#include "tools/bench/suite/table.h"

namespace tandem {

struct SuiteReport {
  std::vector<Table> tables;
  // What went wrong although there are figures, for the exit code.
  absl::Status status = absl::OkStatus();
};

// Runs a suite with these flags, in a scratch folder. InvalidArgument names a
// flag whose value it does not take.
using RunSuite = absl::StatusOr<SuiteReport>(const BenchFlags& flags,
                                             const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SUITE_SUITE_H_
