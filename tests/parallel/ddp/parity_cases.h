// For tests: the jobs of make_ddp_parity.py under DistributedDataParallel.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PARITY_CASES_H_
#define TANDEM_TESTS_PARALLEL_DDP_PARITY_CASES_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem {

// As class Case of the script.
struct ParityCase {
  explicit ParityCase(std::string name);

  int MicrobatchesOf(int step) const;
  bool UsesBranch(int step, int rank) const;

  std::string name;
  DistributedDataParallelOptions options;
  OptimizerOptions optimizer;  // SGD with momentum
  double learning_rate = 0.1;
  // The optimizer as Python calls it, so that what differs is the data
  // parallelism alone; else tandem's.
  bool pythons_optimizer = true;
  int steps = 5;
  int microbatches = 1;
  bool one_microbatch_first = false;   // at the first step
  bool no_sync_around_forward = true;  // and backward; else backward alone
  double clip_norm = 0;
  double clip_value = 0;
  std::function<CommunicationHook()> hook;
  // What the hook makes of gradients before they are summed.
  at::ScalarType sent_as = at::kFloat;
  bool power_sgd = false;
  bool unused = false;
  int times = 1;
  std::vector<std::string> frozen;
};

// The script's AdamW.
OptimizerOptions ParityAdamW();

// Where the job ends, as the script writes it: all parameters one after the
// other, gradients NaN where there is none.
struct ParityResult {
  at::Tensor first_gradients;
  at::Tensor final;
};

// The ParityMlp's suffix on a rank: each begins elsewhere, DDP brings them
// together.
std::string ParitySuffix(int rank);

// This rank's part of a job. Collective.
absl::StatusOr<ParityResult> RunParityCase(const ParityCase& job,
                                           Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PARITY_CASES_H_
