// The suite "safety": what safety costs a training.

#ifndef TANDEM_TOOLS_BENCH_SAFETY_SUITE_H_
#define TANDEM_TOOLS_BENCH_SAFETY_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/safety/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// "costs", by means: a step's milliseconds without any, what it costs each
// time, in one of how many steps, and the percents that are of all steps' time,
// with the least and the greatest of the rounds'. All else is medians.
std::vector<Table> SafetyTables(const std::vector<SafetyResult>& results);

absl::StatusOr<SuiteReport> RunSafetySuite(const BenchFlags& flags,
                                           const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SAFETY_SUITE_H_
