// One case, ours and a peer's: what the reports of all benchmarks have in
// common.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/median.h"

namespace tandem {

struct Comparison {
  std::string name;  // of the case
  std::string peer;
  std::string failure;           // why the peer has no figures; empty: it has
  std::vector<double> ours_ms;   // a step, by round
  std::vector<double> peers_ms;  // likewise; equally many

  bool failed() const { return !failure.empty(); }
  Ratio ratio() const { return RatioOf(peers_ms, ours_ms); }
};

// A line of a table, for a peer that has failed.
std::string FailureLine(const Comparison& comparison);

// {"name", "peer", "reason"}, of one that has failed.
nlohmann::json FailureJson(const Comparison& comparison);

// {"name", "ours_ms", "peer_ms", "peer", "ratio", "ratio_min", "ratio_max"}, of
// one that has not: medians, and peer / ours.
nlohmann::json FiguresJson(const Comparison& comparison);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_H_
