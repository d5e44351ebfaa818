// Reports: what the tables and the JSON of all benchmarks have in common.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_REPORT_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tools/bench/comparison/result.h"
#include "tools/bench/measure/median.h"

namespace tandem {

// A cell of a table: "0.471", "26.30".
std::string Milliseconds(double ms);

// Peer / ours, of a peer that has figures.
Ratio RatioOf(const CaseResult& result, const SideResult& peer);

// A line for each case and peer: times, their ratio and its spread. Above them
// the processor, below them what each side multiplies with, and a line for each
// peer that did not run.
class SpeedTable {
 public:
  explicit SpeedTable(const std::vector<std::string>& further_columns);

  // `further` makes a peer's cells of the further columns.
  void Add(const CaseResult& result,
           absl::FunctionRef<std::vector<std::string>(const SideResult& peer)>
               further);

  std::string Text() const;

 private:
  void AddKernels(const CaseResult& result, const SideResult& side);

  std::vector<std::vector<std::string>> rows_;
  std::vector<std::string> kernels_;  // each once
  std::string failures_;
};

// Adds to report["cases"] {"name", "ours_ms", "peer_ms", "peer", "ratio",
// "ratio_min", "ratio_max"} and what `further` makes, for each peer with
// figures: medians, and peer / ours. For the others adds to report["failures"]
// {"name", "peer", "reason"}.
void AddToJson(
    const CaseResult& result,
    absl::FunctionRef<nlohmann::json(const SideResult& peer)> further,
    nlohmann::json& report);

// Whether a peer has no figures.
bool HasFailures(const CaseResult& result);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_REPORT_H_
