// Reports of checkpoints' speed: a table for people, figures for programs.

#ifndef TANDEM_TOOLS_BENCH_CHECKPOINT_REPORT_H_
#define TANDEM_TOOLS_BENCH_CHECKPOINT_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/checkpoint/run.h"

namespace tandem {

// A line for each state and operation: milliseconds and MB a second (medians)
// on each side, their ratio, above 1 where tandem is faster, and its range over
// the rounds.
std::string CheckpointTable(const std::vector<CheckpointResult>& results);

// {"cases": [{"state", "operation", "bytes", "ours_ms", "peer_ms", "ratio",
// "ratio_min", "ratio_max"}]}: medians, and peer / ours.
nlohmann::json CheckpointJson(const std::vector<CheckpointResult>& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CHECKPOINT_REPORT_H_
