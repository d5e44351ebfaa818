// Transparency (torchgpipe's test): whatever the schedule, layout and options,
// a pipeline computes what the model in one piece does. One cell of the matrix.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_PIPELINE_MATRIX_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_PIPELINE_MATRIX_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

namespace tandem {

struct MatrixCell {
  std::string model;  // of the registry; resnet18_deferred: DeferredBatchNorm
  std::string schedule;
  int stages = 1;
  int microbatches = 1;
  std::string place;  // "local", "ranks" (shm), "gloo", or "both" (2 x 2)
  std::string checkpointing;
  std::string device;  // "cpu", "sim"
};

std::string ToString(const MatrixCell& cell);

// The settings' values, in the order of MatrixCell's members.
const MatrixValues& MatrixSettings();
MatrixCell CellOf(const Combination& combination);

// Why this cell makes no sense; empty if it does.
std::string WhyNot(const MatrixCell& cell);

// What a cell came to: the greatest difference, relative to the greatest value
// of the same tensor, among outputs, losses, gradients, weights and buffers.
struct CellResult {
  double difference = 0;
  std::string where;   // that difference is
  bool moved = false;  // did the weights change in training?
};

// Trains the model in one piece and in stages, from the same start on the same
// microbatches. An error if either fails.
absl::StatusOr<CellResult> RunCell(const MatrixCell& cell);

// What the difference may be at most: 0 for one microbatch; else sums of
// gradients have another order.
double ToleranceOf(const MatrixCell& cell);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_PIPELINE_MATRIX_H_
