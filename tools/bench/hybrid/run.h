// The cases of the hybrid's benchmark: tandem and PyTorch side by side.

#ifndef TANDEM_TOOLS_BENCH_RUN_HYBRID_H_
#define TANDEM_TOOLS_BENCH_RUN_HYBRID_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/hybrid_case.h"
#include "tools/bench/hybrid_result.h"
#include "tools/bench/pipeline_sides.h"

namespace tandem {

// Runs cases of one model; `options.layout` and `options.peers` mean nothing
// here. All sides begin from the same weights and batches; each tries its
// settings, whose losses are compared before they are timed, and keeps the
// fastest; then the sides take turns, among them with `reproducible` tandem
// with and without that flag. Prints what it does on stderr.
//
// An error when a side of tandem fails. A peer that fails, or whose losses
// differ, has no figures: its results say why.
absl::StatusOr<std::vector<HybridCaseResult>> RunHybridModel(
    const std::vector<HybridCase>& cases, const PipelineBenchOptions& options,
    bool reproducible);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RUN_HYBRID_H_
