// Runs of gradients: the parts of a flat buffer that have any.

#ifndef TANDEM_PARALLEL_OPTIM_GRADIENT_RUNS_H_
#define TANDEM_PARALLEL_OPTIM_GRADIENT_RUNS_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Maximal runs of neighbours that have one, as slices of grads(), with their
// padding, which is zero.
std::vector<at::Tensor> RunsOfGradients(const FlatBuffer& buffer);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_GRADIENT_RUNS_H_
