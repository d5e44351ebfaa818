// Training problem of a cell: models so small that thousands of layouts can be
// tried. Those of reproducible cells have sizes that fill no vector of a
// processor, the others are the registry's, on uneven batches.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_CELL_PROBLEM_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_CELL_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/matrix_cell.h"

namespace tandem {

struct CellProblem {
  LayerSpecs specs;
  std::vector<Batch> batches;  // one a step, of all replicas
  double learning_rate = 0;
  Batch test;  // for the outputs of a model in one piece or in stages
};

SgdOptions MomentumSgd();

// 10 steps of a reproducible cell.
CellProblem MakeProblem(const MatrixCell& cell);

uint64_t CellSeed(const MatrixCell& cell);

// Samples of a reproducible cell's microbatch.
int64_t MicrobatchSize(const MatrixCell& cell);

// The model as that rank has it: divided over its devices where microbatches
// are divided.
absl::StatusOr<LayerSpecs> RankModel(const MatrixCell& cell,
                                     const CellProblem& problem, int rank);

// The options of rank `rank` of cell.ranks(). Of a reproducible cell, each
// stage has a layer with parameters, and resnet18 clips.
absl::StatusOr<MeshStrategyOptions> RankOptions(const MatrixCell& cell,
                                                const CellProblem& problem,
                                                int rank);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_CELL_PROBLEM_H_
