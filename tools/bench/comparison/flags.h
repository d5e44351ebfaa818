// What the flags that all comparisons take mean to them.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_FLAGS_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/start.h"
#include "tools/bench/suite/flags.h"

namespace tandem {

// --python, --threads, --rounds (else `usual_rounds`) and --steps.
// InvalidArgument as CheckOptions. Looks for the Python, and keeps why there is
// none.
absl::StatusOr<ComparisonOptions> OptionsFromFlags(const BenchFlags& flags,
                                                   int usual_rounds,
                                                   const std::string& folder);

// Of these cases those of --cases, in each of --dtypes. InvalidArgument for
// unknown ones.
absl::StatusOr<std::vector<Case>> CasesFromFlags(const std::vector<Case>& all,
                                                 const BenchFlags& flags);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_FLAGS_H_
