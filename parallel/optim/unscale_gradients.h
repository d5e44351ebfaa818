// Gradients of a scaled loss, made those of the loss itself
// (torch.amp.GradScaler's unscale_).

#ifndef TANDEM_PARALLEL_OPTIM_UNSCALE_GRADIENTS_H_
#define TANDEM_PARALLEL_OPTIM_UNSCALE_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Multiplies all gradients by `inverse` (LossScale::inverse), and returns
// whether one of their elements was infinite or NaN, in one pass over memory
// (core/vector/multiply_and_find_inf.h). Parameters without a gradient take no
// part. Throws c10::Error.
bool UnscaleGradients(const FlatBufferList& buffers, float inverse);

// The same where the gradients lie: `inverse` and `found_inf` are numbers of
// float32 on their device, and the latter becomes 1 where one was infinite or
// NaN, else it stays. The host waits for no device.
void UnscaleGradients(const FlatBufferList& buffers, const at::Tensor& inverse,
                      const at::Tensor& found_inf);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_UNSCALE_GRADIENTS_H_
