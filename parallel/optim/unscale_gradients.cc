#include "parallel/optim/unscale_gradients.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "core/vector/multiply_and_find_inf.h"
#include "parallel/optim/gradient_runs.h"

namespace tandem {
bool UnscaleGradients(const FlatBufferList& buffers, float inverse) {
  const at::NoGradGuard no_grad;
  bool found = false;
  for (const FlatBuffer* buffer : buffers) {
    const std::vector<at::Tensor> runs = RunsOfGradients(*buffer);
    found |= MultiplyAndFindInf(runs, inverse);
  }
  return found;
}

}  // namespace tandem
