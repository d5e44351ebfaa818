// Steps of which the host does not know whether the device did them.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/optim/captured_step.h"
#include "parallel/optim/optimizer.h"

namespace tandem {

std::vector<size_t> Optimizer::IdsWithGradient(const Part& part) {
  std::vector<size_t> ids;
  const std::vector<FlatSlot>& slots = part.buffer->slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (part.buffer->has_gradient(i)) ids.push_back(slots[i].id);
  }
  return ids;
}

bool Optimizer::IsPastFirstStep() const {
  Settle();
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
    const std::vector<size_t> ids = IdsWithGradient(part);
    return std::all_of(ids.begin(), ids.end(),
                       [&](size_t id) { return part.steps[id] > 0; });
  });
}

void Optimizer::BeginUnsettled(Part& part) const {
  const std::vector<size_t> ids = IdsWithGradient(part);
  BeginUnsettled(part, ids);
  CapturedStep* const captured = CapturedStep::Current();
  if (captured == nullptr) return;
  captured->Add([this, &part, ids](CapturedStep::When when, double) {
    if (when == CapturedStep::When::kNextStep) BeginUnsettled(part, ids);
    if (when == CapturedStep::When::kNever) --part.unsettled.count;
  });
}

// Steps of which it is not known whether they were done are of the same
// parameters, and of none that may have had its first among them where that one
// is another than those that follow.
void Optimizer::BeginUnsettled(Part& part,
                               const std::vector<size_t>& ids) const {
  Unsettled& its = part.unsettled;
  const bool first_counts = its.count > 0 && !traits_.counts_steps &&
                            std::any_of(ids.begin(), ids.end(), [&](size_t id) {
                              return its.before[id] == 0;
                            });
  if (its.count > 0 && (first_counts || ids != its.ids)) Settle(part);
  if (its.count++ > 0) return;
  its.ids = ids;
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
