#include "parallel/optim/unscale_gradients.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/vector/multiply_and_find_inf.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

// Maximal runs of neighbours that have a gradient, as slices of grads(), with
// their padding, which is zero.
std::vector<at::Tensor> RunsOfGradients(const FlatBuffer& buffer) {
  const std::vector<FlatSlot>& slots = buffer.slots();
  std::vector<at::Tensor> runs;
  for (size_t end, begin = 0; begin < slots.size(); begin = end + 1) {
    end = begin;
    while (end < slots.size() && buffer.has_gradient(end)) ++end;
    if (end == begin) continue;
    const int64_t from = slots[begin].offset;
    runs.push_back(buffer.grads().narrow(0, from, slots[end - 1].end - from));
  }
  return runs;
}

}  // namespace

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
