#include "parallel/optim/gradient_runs.h"

#include <cstddef>
#include <cstdint>

namespace tandem {

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

}  // namespace tandem
