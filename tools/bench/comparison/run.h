// A case, measured: tandem beside peers of several kinds, in turns.

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_RUN_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_RUN_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/case/setting.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/start.h"

namespace tandem {

// Whom tandem is compared with.
struct Peer {
  std::string name;
  Program program = Program::kPyTorch;
  std::vector<Setting> settings;  // of which it takes the fastest
  // Its process may fail: the result then says why.
  bool may_fail = false;
};

// Peers that are called as the recipes that they follow, of which those in
// `may_fail` may.
std::vector<Peer> PeersOfRecipes(const std::vector<std::string>& recipes,
                                 Program program,
                                 const std::vector<std::string>& may_fail);

// What a suite measures besides, of all contenders, tandem's first.
using FurtherMeasurements =
    absl::FunctionRef<absl::Status(const std::vector<Contender*>& all)>;

// Writes weights and batches to a folder of the case's own, starts all, and
// compares losses with tandem's, which `losses` learns; then they take turns.
// Whoever is not at work sleeps, and keeps its memory. Prints what it does on
// stderr. An error when losses differ, or one fails that may not.
absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options,
                                   FurtherMeasurements further);
// The same without any.
absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_RUN_H_
