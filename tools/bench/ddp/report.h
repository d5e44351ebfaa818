// What the benchmark says: tables for people, JSON for programs.

#ifndef TANDEM_TOOLS_BENCH_BENCH_REPORT_H_
#define TANDEM_TOOLS_BENCH_BENCH_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/run_case.h"
#include "tools/bench/startup.h"

namespace tandem {

// One line for each case and peer: times, their ratio and its spread, memory.
std::string SpeedTable(const std::vector<CaseResult>& results);

// Where tandem's and the peers' steps go: a step, the same without the other
// ranks, the communication of gradients and what of it is exposed, processor
// time, page faults.
std::string BreakdownTable(const std::vector<CaseResult>& results);

// What the machine could do at best, measured in the same run: how long a step
// would take at the rate of large matrix products, and how long the gradients
// take with nothing else to do.
std::string RooflineTable(const std::vector<CaseResult>& results);

// The operators in which tandem's local steps spend most.
std::string ProfileTable(const CaseResult& result);

// {"cases": [{"name", "ours_ms", "peer_ms", "peer", "ratio", "ratio_min",
// "ratio_max"}, ...], "failures": [{"name", "peer", "reason"}, ...],
// "startup": {"ours_ms", "peer_ms", "ratio"}}. A case has an entry for each
// peer that was measured. All ratios are peer / ours. Failures and start-up are
// left out if there are none.
nlohmann::json BenchJson(const std::vector<CaseResult>& results,
                         const StartupResult& startup);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_BENCH_REPORT_H_
