// Mutations of a reproducible cell, by which it is broken on purpose: a matrix
// that does not find them proves nothing.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_CELL_MUTATION_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_CELL_MUTATION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/matrix/matrix_cell.h"

namespace tandem {

enum class CellMutation {
  kNone,
  // The first stage's gradients, summed over its replicas, are summed over them
  // once more. For 2 replicas or more, and a part of the model on each device.
  kBucketReducedTwice,
  // The last replica computes its microbatches 1 and 2 in the other order.
  kSwappedMicrobatch,
  // The last replica leaves out what lm_head adds to the gradient of the
  // weights that it shares with the embedding.
  kMissingTiedGradient,
};

std::string ToString(CellMutation mutation);

// Breaks one rank of a run.
class MutatedRank {
 public:
  // `hybrid` and `world` must outlive this. Collective.
  static absl::StatusOr<std::unique_ptr<MutatedRank>> Create(
      CellMutation mutation, const MatrixCell& cell, MeshStrategy& hybrid,
      Communicator* world);

  // What this rank is given instead of `batch`.
  Batch Changed(const Batch& batch) const;

 private:
  friend class ArmedMutation;

  absl::Status PrepareToReduce(const MatrixCell& cell, MeshStrategy& hybrid,
                               Communicator* world);
  absl::Status ReduceAgain();

  bool swaps_ = false;
  int64_t microbatch_size_ = 0;
  std::unique_ptr<Communicator> replicas_;  // of the first stage
  NamedTensors bucket_;                     // its parameters
};

// Lets ranks of this process be mutated as long as it lives: to be made before
// they run.
class ArmedMutation {
 public:
  explicit ArmedMutation(CellMutation mutation);
  ~ArmedMutation();
  ArmedMutation(const ArmedMutation&) = delete;
  ArmedMutation& operator=(const ArmedMutation&) = delete;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_CELL_MUTATION_H_
