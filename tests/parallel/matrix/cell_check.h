// What must be true of a layout's run.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_CELL_CHECK_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_CELL_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/parallel/matrix/cell_mutation.h"
#include "tests/parallel/matrix/cell_run.h"
#include "tests/parallel/matrix/matrix_cell.h"

namespace tandem {

// What differs in a run from the reference, and how much.
struct Differences {
  // Reproducible cells: where the bits of losses and state, on any rank, are
  // not one device's: "loss of step 3", "fc.weight on rank 2". Each replica
  // must have all of the model, once. Other cells: what is further away than
  // Tolerance().
  std::vector<std::string> found;
  // The greatest, relative to the greatest value of the same tensor, and where
  // it is; of reproducible cells, for which there are only bits, 0.
  double greatest = 0;
  std::string where;
};

Differences CompareRuns(const MatrixCell& cell, const CellRun& run,
                        const CellRun& reference);

// 0 for one microbatch and for reproducible cells; else sums of gradients have
// another order.
double Tolerance(const MatrixCell& cell);

// What was not as distinct as the layout of a reproducible cell says: stages'
// layers, parameters, memory, threads and (simulated) devices; replicas'
// samples.
std::vector<std::string> Confusions(const MatrixCell& cell, const CellRun& run);

// Parameters that training has not changed, and losses that are no numbers.
std::vector<std::string> Idleness(const CellRun& run);

struct CellResult {
  Differences differences;
  // Confusions, then Idleness; of a cell that is not reproducible, that no
  // parameter has changed.
  std::vector<std::string> others;

  bool is_right() const { return differences.found.empty() && others.empty(); }
};

// Runs a cell, and, the first time that it is needed, its reference. Not
// thread-safe. An error if a run fails.
absl::StatusOr<CellResult> TryCell(const MatrixCell& cell,
                                   CellMutation mutation = CellMutation::kNone);

// The run that a cell is compared with.
absl::StatusOr<const CellRun*> ReferenceRun(const MatrixCell& cell);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_CELL_CHECK_H_
