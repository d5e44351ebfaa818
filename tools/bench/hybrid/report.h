// What the hybrid's benchmark says: tables for people, JSON for programs.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_REPORT_H_
#define TANDEM_TOOLS_BENCH_HYBRID_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/hybrid_result.h"

namespace tandem {

// A line for each case: times, their ratio and its spread, memory, settings.
std::string HybridSpeedTable(const std::vector<HybridCaseResult>& results);

// A line for each case: what reproducible costs, against the same setting
// without it, and against the fastest without it.
std::string ReproducibleTable(const std::vector<HybridCaseResult>& results);

// A line for each case of several replicas: how long all-reduces take, and how
// much of it backward and cool-down hide.
std::string OverlapTable(const std::vector<HybridCaseResult>& results);

// {"cases": [{"name", "ours_ms", "peer_ms", "peer", "ratio", "ratio_min",
// "ratio_max", "ours_mib", "peer_mib", "ours_setting", "peer_setting"}, ...],
// "reproducible": [{"name", "setting", "without_ms", "with_ms", "cost",
// "cost_min", "cost_max", "cost_of_fastest"}, ...], "overlap": [{"name",
// "all_reduce_ms", "hidden_ms", "share"}, ...], "failures": [{"name", "peer",
// "reason"}, ...]}. Ratios are peer / ours, costs with / without - 1, memory
// that of the greatest rank. The last three are left out if empty.
nlohmann::json HybridJson(const std::vector<HybridCaseResult>& results);

// Whether a peer has no figures.
bool HasFailures(const std::vector<HybridCaseResult>& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_REPORT_H_
