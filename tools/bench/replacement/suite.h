// The suite "replacement": what a rank's death costs, by replacement and by
// restart.

#ifndef TANDEM_TOOLS_BENCH_REPLACEMENT_SUITE_H_
#define TANDEM_TOOLS_BENCH_REPLACEMENT_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/replacement/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// Of one model.
struct ModelReplacement {
  std::string model;
  ReplacementResult times;
};

// "ways": medians, and what the death cost; "rounds": the seconds of each.
std::vector<Table> ReplacementTables(
    const std::vector<ModelReplacement>& results);

absl::StatusOr<SuiteReport> RunReplacementSuite(const BenchFlags& flags,
                                                const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_REPLACEMENT_SUITE_H_
