// Inference: what a pipeline's forward-only pass gives.

#ifndef TANDEM_PARALLEL_PIPELINE_INFERENCE_H_
#define TANDEM_PARALLEL_PIPELINE_INFERENCE_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/loss/loss_terms.h"
#include "core/model/batch.h"

namespace tandem {

struct Inference {
  // Where the last stage is; elsewhere empty.
  Score score;  // of batches with targets
  // The last layer's, by microbatch; what the loss takes beside it is not
  // given.
  std::vector<at::Tensor> outputs;
  // Named sums that layers here, and the loss function, have added.
  std::vector<LossTerm> sums;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_INFERENCE_H_
