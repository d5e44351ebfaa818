// Adam and AdamW.

#ifndef TANDEM_PARALLEL_OPTIM_ADAM_H_
#define TANDEM_PARALLEL_OPTIM_ADAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer.h"

namespace tandem {

// Names, meaning and defaults of torch.optim.Adam; the learning rate comes with
// each step.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  bool amsgrad = false;     // divides by the greatest mean square so far
};

// Those of torch.optim.AdamW.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // taken from the parameter itself
  bool amsgrad = false;
};

// torch.optim.Adam (Kingma and Ba, arXiv:1412.6980) and torch.optim.AdamW
// (Loshchilov and Hutter, arXiv:1711.05101), either with AMSGrad (Reddi et al.,
// arXiv:1904.09237), as fused steps over `buffers`, which must outlive them.
// State: exp_avg, exp_avg_sq, max_exp_avg_sq with amsgrad, and step for each
// parameter. InvalidArgument for betas outside [0, 1) and for negative
// or non-finite values.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(
    const AdamOptions& options, const FlatBufferList& buffers);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdamW(
    const AdamWOptions& options, const FlatBufferList& buffers);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_ADAM_H_
