// Tables that all comparisons have: their cases, who has no figures, and what
// each side multiplies with.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_REPORT_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_REPORT_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/suite/table.h"

namespace tandem {

// Peer / ours, of a peer that has figures.
Ratio PairedRatio(const CaseResult& result, const SideResult& peer);

// Samples of the whole batch, for a side that has figures.
double SamplesPerSecond(const CaseResult& result, const SideResult& side);

// Whether a peer has no figures.
bool HasFailures(const CaseResult& result);

class CaseTables {
 public:
  // Columns of "cases" behind name, peer, ours ms, peer ms and the ratio with
  // its least and greatest round: medians, and peer / ours.
  explicit CaseTables(const std::vector<Column>& further);

  // A row for each peer that has figures, of which `further` makes those of the
  // further columns.
  void Add(
      const CaseResult& result,
      absl::FunctionRef<std::vector<nlohmann::json>(const SideResult& peer)>
          further);

  // "cases"; "failures", of the other peers; "kernels", what each side
  // multiplies with in which dtype, on which processor; "floors" of cases that
  // have one: what the products of a replica's step take alone and what its
  // other operators move through memory at the rate at which all cores at once
  // read and write it, on one core; "floor", both on its devices, and what that
  // is of a step.
  const std::vector<Table>& tables() const { return tables_; }

 private:
  void AddKernels(const CaseResult& result, const SideResult& side);
  void AddFloor(const CaseResult& result);

  std::vector<Table> tables_;
};

// All of them, with the most memory of a rank of each side.
std::vector<Table> TablesWithMemory(const std::vector<CaseResult>& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_REPORT_H_
