// The suite "gpt": a GPT's tokens a second beside PyTorch's, eager and
// compiled, in every layout.

#ifndef TANDEM_TOOLS_BENCH_GPT_SUITE_H_
#define TANDEM_TOOLS_BENCH_GPT_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/result.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// "cases", "failures", "kernels", with tokens a second, the rate of
// floating-point operations, a rank's memory, what it comes to by formula
// (formula.h), and the settings.
std::vector<Table> GptTables(const std::vector<CaseResult>& results);

absl::StatusOr<SuiteReport> RunGptSuite(const BenchFlags& flags,
                                        const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPT_SUITE_H_
