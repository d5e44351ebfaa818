// Laboratory of the matrix: it trains one cell, every rank a thread, or the
// model in one piece, and keeps what each rank came to.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_CELL_RUN_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_CELL_RUN_H_

#include <c10/core/Device.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "tests/parallel/matrix/cell_mutation.h"
#include "tests/parallel/matrix/matrix_cell.h"

namespace tandem {

// What a rank has of one part of the model.
struct StageReport {
  int number = 0;
  int layers = 0;
  c10::Device device = c10::kCPU;
  std::thread::id thread;  // that works for it
  std::vector<std::string> parameters;
  // Where they lie; while every rank was at work.
  std::vector<const void*> storages;
};

struct RankReport {
  std::string strategy;
  std::string samples;  // a fingerprint of the first step's inputs, if it had
  std::vector<StageReport> stages;
  std::vector<double> losses;  // by step, of the whole batch
  // Parameters, buffers, and as "optimizer NAME" the optimizer's state. Of a
  // cell that is not reproducible: "gradient of NAME" in the last step, where
  // it is computed "outputs" for the test batch, and on rank 0 all parameters
  // and buffers.
  NamedTensors state;
  std::vector<std::string> unmoved;  // parameters that are what they were
  bool has_moved = false;            // has any parameter changed?
};

// By rank that trains: of a parameter server's job the workers, which report
// its optimizer state.
using CellRun = std::vector<RankReport>;

// Trains the cell's layout. An error if a rank fails.
absl::StatusOr<CellRun> RunCell(const MatrixCell& cell,
                                CellMutation mutation = CellMutation::kNone);

// Trains the model of a cell that is not reproducible without any strategy, on
// the same microbatches.
absl::StatusOr<CellRun> RunInOnePiece(const MatrixCell& cell);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_CELL_RUN_H_
