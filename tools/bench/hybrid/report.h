// Reports of the hybrid's benchmark: tables for people, JSON for programs.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_REPORT_H_
#define TANDEM_TOOLS_BENCH_HYBRID_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/hybrid/result.h"

namespace tandem {

// A line for each case: times, their ratio and its spread, memory, settings.
std::string HybridSpeedTable(const std::vector<HybridResult>& results);

// A line for each case: what reproducible costs, against the same setting
// without it, and against the fastest without it.
std::string ReproducibleTable(const std::vector<HybridResult>& results);

// A line for each case of several replicas: how long all-reduces take, and how
// much of it backward and cool-down hide.
std::string OverlapTable(const std::vector<HybridResult>& results);

// {"cases", "failures": see AddToJson, and of a case {"ours_mib", "peer_mib",
// "ours_setting", "peer_setting"}, "reproducible": [{"name", "setting",
// "without_ms", "with_ms", "cost", "cost_min", "cost_max", "cost_of_fastest"},
// ...], "overlap": [{"name", "all_reduce_ms", "hidden_ms", "share"}, ...]}.
// Ratios are peer / ours, costs with / without - 1, memory that of the greatest
// rank. All but cases are left out if empty.
nlohmann::json HybridJson(const std::vector<HybridResult>& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_REPORT_H_
