// Reports of distributed data parallel: tables for people, JSON for programs.

#ifndef TANDEM_TOOLS_BENCH_DDP_REPORT_H_
#define TANDEM_TOOLS_BENCH_DDP_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/ddp/result.h"
#include "tools/bench/ddp/startup.h"

namespace tandem {

// One line for each case and peer: times, their ratio and its spread, memory.
std::string DdpSpeedTable(const std::vector<DdpResult>& results);

// Where tandem's and the peers' steps go: a step, the same without the other
// ranks, the communication of gradients and what of it is exposed, processor
// time, page faults.
std::string BreakdownTable(const std::vector<DdpResult>& results);

// What the machine could do at best, measured in the same run: how long a step
// would take at the rate of large matrix products, and how long the gradients
// take with nothing else to do.
std::string RooflineTable(const std::vector<DdpResult>& results);

// The operators in which tandem's steps spend most, without the other ranks.
std::string ProfileTable(const DdpResult& result);

// {"cases", "failures": see AddToJson, "startup": {"ours_ms", "peer_ms",
// "ratio"}}. All ratios are peer / ours. Failures and start-up are left out if
// there are none.
nlohmann::json DdpJson(const std::vector<DdpResult>& results,
                       const StartupResult& startup);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DDP_REPORT_H_
