// Steps of which the host does not know whether the device did them.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

std::vector<size_t> IdsWithGradient(const FlatBuffer& buffer) {
  std::vector<size_t> ids;
  const std::vector<FlatSlot>& slots = buffer.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (buffer.has_gradient(i)) ids.push_back(slots[i].id);
  }
  return ids;
}

}  // namespace

// Steps of which it is not known whether they were done are of the same
// parameters, and of none that may have had its first among them where that one
// is another than those that follow.
void Optimizer::BeginUnsettled(Part& part) const {
  Unsettled& its = part.unsettled;
  std::vector<size_t> ids = IdsWithGradient(*part.buffer);
  const bool first_counts = its.count > 0 && !traits_.counts_steps &&
                            std::any_of(ids.begin(), ids.end(), [&](size_t id) {
                              return its.before[id] == 0;
                            });
  if (its.count > 0 && (first_counts || ids != its.ids)) Settle(part);
  if (its.count++ > 0) return;
  its.ids = std::move(ids);
  its.before = part.steps;
  if (its.skipped.defined()) return;
  its.skipped =
      at::zeros({}, part.buffer->values().options().dtype(at::kFloat));
}

void Optimizer::Settle(Part& part) const {
  Unsettled& its = part.unsettled;
  if (its.count == 0) return;
  const at::NoGradGuard no_grad;
  const int64_t done =
      its.count - static_cast<int64_t>(its.skipped.item<float>());
  for (const size_t id : its.ids) {
    const int64_t before = its.before[id];
    part.steps[id] = done == 0              ? before
                     : traits_.counts_steps ? before + done
                                            : 1;
  }
  its.skipped.zero_();
  its.count = 0;
}

void Optimizer::Settle() const {
  for (Part& part : parts_) Settle(part);
}

}  // namespace tandem
