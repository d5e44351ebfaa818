#include "parallel/optim/slot_slice.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

// The share's elements of the slot, in the whole flat tensor.
ElementSpan PartOf(const FlatSlot& slot, const FlatShare& share) {
  return {std::max(slot.offset, share.span.begin),
          std::min(slot.offset + slot.numel, share.span.end)};
}

at::Tensor ElementsOf(const FlatShare& share, const ElementSpan& part) {
  return share.mine.narrow(0, part.begin - share.span.begin, part.length());
}

}  // namespace

bool HoldsPart(const FlatSlot& slot, const FlatShare& share) {
  if (slot.numel == 0) return share.is_first;
  const ElementSpan part = PartOf(slot, share);
  return part.begin < part.end;
}

void AddSlice(const FlatSlot& slot, const FlatShare& share,
              const std::string& name, StatePart* part) {
  if (!HoldsPart(slot, share)) return;
  const bool is_empty = slot.numel == 0;
  const ElementSpan mine = PartOf(slot, share);
  part->tensors.emplace_back(
      name, is_empty ? share.mine.narrow(0, 0, 0) : ElementsOf(share, mine));
  part->slices[name] = {slot.parameter.sizes().vec(),
                        slot.parameter.strides().vec(),
                        is_empty ? 0 : mine.begin - slot.offset};
}

absl::Status ReadSlice(const StoredTensor& values, const FlatSlot& slot,
                       const FlatShare& share) {
  const ElementSpan mine = PartOf(slot, share);
  if (mine.begin >= mine.end) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor laid_out, CatchTorchOr([&] {
                            return at::empty({slot.numel},
                                             share.mine.options());
                          }));
  TANDEM_RETURN_IF_ERROR(ReadInto(
      values,
      laid_out.as_strided(slot.parameter.sizes(), slot.parameter.strides())));
  return CatchTorch([&] {
    ElementsOf(share, mine)
        .copy_(laid_out.narrow(0, mine.begin - slot.offset, mine.length()));
  });
}

}  // namespace tandem
