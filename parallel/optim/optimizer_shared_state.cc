// The state of an optimizer that ranks share: this rank's slices of it.

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "parallel/optim/optimizer.h"

namespace tandem {

StatePart Optimizer::SharedState() const {
  Settle();
  StatePart shared;
  for (const Place& place : PlacesInOrder()) {
    const Part& part = parts_[place.part];
    const FlatSlot& slot = part.buffer->slots()[place.slot];
    if (!part.is_shared || part.steps[slot.id] == 0) continue;
    AddShare(part, place.slot, &shared);
  }
  return shared;
}

// The number of steps is of the rank that has the first element; a parameter
// without elements is the first rank's.
void Optimizer::AddShare(const Part& part, size_t slot,
                         StatePart* shared) const {
  const FlatSlot& place = part.buffer->slots()[slot];
  const int64_t begin = std::max(place.offset, part.span.begin);
  const int64_t end = std::min(place.offset + place.numel, part.span.end);
  const bool is_empty = place.numel == 0;
  if (is_empty ? !part.is_first : begin >= end) return;
  for (size_t i = 0; i < part.state.size(); ++i) {
    const std::string name = absl::StrCat(place.name, ".", traits_.buffers[i]);
    shared->tensors.emplace_back(
        name, is_empty ? part.state[i].narrow(0, 0, 0)
                       : part.state[i].narrow(0, begin - part.span.begin,
                                              end - begin));
    shared->slices[name] = {place.parameter.sizes().vec(),
                            place.parameter.strides().vec(),
                            is_empty ? 0 : begin - place.offset};
  }
  if (traits_.counts_steps && (is_empty || begin == place.offset)) {
    shared->tensors.emplace_back(absl::StrCat(place.name, ".", kStepState),
                                 at::scalar_tensor(part.steps[place.id]));
  }
}

}  // namespace tandem
