// Summed gradients of tensor parallelism: those of parameters that are whole on
// each rank, which has seen a part of the tokens (Megatron-LM's all-reduce of
// layer norms' gradients; 2205.05198, section 4.2.2).

#ifndef TANDEM_PARALLEL_TENSOR_PARALLEL_SUMMED_GRADIENTS_H_
#define TANDEM_PARALLEL_TENSOR_PARALLEL_SUMMED_GRADIENTS_H_

#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/pipeline/training_step.h"

namespace tandem {

// Sums at the end of a step, when gradients have been averaged over replicas:
// after these averages on every rank, so that no two groups wait for each
// other. They are few: norms and biases.
class SummedGradients : public StageGradients {
 public:
  // `group` has the ranks that share the layers, and is used for nothing else;
  // it and the buffers must outlive this. A parameter has a gradient on all of
  // them, or on none.
  SummedGradients(std::vector<FlatBuffer*> buffers, Communicator& group);

  absl::Status Prepare() override { return absl::OkStatus(); }
  absl::Status Before(const Action& action, bool last) override;
  absl::Status After(const Action& action, bool last) override;
  // Errors are Communicator's.
  absl::Status Finish() override;

 private:
  const std::vector<FlatBuffer*> buffers_;
  Communicator& group_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_TENSOR_PARALLEL_SUMMED_GRADIENTS_H_
