// What tools/bench_gpt shows.

#ifndef TANDEM_TOOLS_BENCH_GPT_REPORT_H_
#define TANDEM_TOOLS_BENCH_GPT_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/comparison/result.h"

namespace tandem {

// Times and their ratio, tokens a second, the rate of floating-point
// operations, a rank's memory, what it comes to by formula (formula.h), and the
// settings, by case and peer.
std::string GptTable(const std::vector<CaseResult>& results);

// {"cases", "failures"}: those of AddToJson, and "ours_tokens_per_s",
// "peer_tokens_per_s", "ours_gflops", "peer_gflops", "ours_mib", "peer_mib",
// "ours_formula_mib", "peer_formula_mib", "ours_setting", "peer_setting".
nlohmann::json GptJson(const std::vector<CaseResult>& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPT_REPORT_H_
