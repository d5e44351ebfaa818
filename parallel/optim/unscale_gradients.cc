#include "parallel/optim/unscale_gradients.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>

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

void UnscaleGradients(const FlatBufferList& buffers, const at::Tensor& inverse,
                      const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  for (const FlatBuffer* buffer : buffers) {
    const std::vector<at::Tensor> runs = RunsOfGradients(*buffer);
    if (runs.empty()) continue;
    if (found_inf.is_cpu()) {
      if (MultiplyAndFindInf(runs, inverse.item<float>())) found_inf.fill_(1);
      continue;
    }
    at::Tensor found = found_inf;
    at::_amp_foreach_non_finite_check_and_unscale_(runs, found, inverse);
  }
}

}  // namespace tandem
