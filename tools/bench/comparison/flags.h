// Flags that the programs of all comparisons take: --python, --threads, --steps
// and --json.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_FLAGS_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_FLAGS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/start.h"

namespace tandem {

// What the flags say, and the program's --rounds; without a folder.
// InvalidArgument as CheckOptions. Looks for the Python, and keeps why there is
// none.
absl::StatusOr<ComparisonOptions> OptionsFromFlags(int rounds);

// Of these cases those of --cases, in each of --dtypes. InvalidArgument for
// unknown ones.
absl::StatusOr<std::vector<Case>> CasesFromFlags(
    const std::vector<Case>& all, const std::vector<std::string>& names);

// To the file of --json, if there is one.
absl::Status WriteFigures(const nlohmann::json& figures);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_FLAGS_H_
