// What a layout trains: models so small that thousands of layouts can be tried,
// with sizes that fill no vector of a processor.

#ifndef TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_PROBLEM_H_
#define TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/e2e/layouts/layout_cell.h"

namespace tandem {

struct LayoutProblem {
  LayerSpecs specs;
  std::vector<Batch> batches;  // one a step, of all replicas
  double learning_rate = 0;
};

// 10 steps.
LayoutProblem ProblemOf(const LayoutCell& cell);

// Samples of a microbatch.
int64_t MicrobatchSizeOf(const LayoutCell& cell);

// The model as that rank has it: divided over its devices where microbatches
// are.
absl::StatusOr<LayerSpecs> ModelOf(const LayoutCell& cell,
                                   const LayoutProblem& problem, int rank);

// What rank `rank` of cell.ranks() is given: --reproducible, and for resnet18
// clipping. Each stage has a layer with parameters.
absl::StatusOr<MeshStrategyOptions> OptionsOf(const LayoutCell& cell,
                                              const LayoutProblem& problem,
                                              int rank);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_PROBLEM_H_
