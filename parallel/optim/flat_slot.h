// Flat slot: a parameter's place in a FlatBuffer (flat_buffer.h).

#ifndef TANDEM_PARALLEL_OPTIM_FLAT_SLOT_H_
#define TANDEM_PARALLEL_OPTIM_FLAT_SLOT_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

// In elements.
struct FlatSlot {
  std::string name;
  at::Tensor parameter;  // the model's own; a view of values()
  int64_t position;      // among the parameters that were given
  size_t id;             // which slot it was at first: stays when order changes
  int64_t offset;        // on a 64-byte boundary
  int64_t numel;
  int64_t end;  // the next slot's offset: after `numel` elements, zeros

  // Is `tensor`, which may be undefined, the view of `flat` that is this
  // slot's?
  bool LiesIn(const at::Tensor& tensor, const at::Tensor& flat) const {
    return tensor.defined() && !tensor.is_sparse() &&
           tensor.is_alias_of(flat) &&
           tensor.storage_offset() == flat.storage_offset() + offset;
  }
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_FLAT_SLOT_H_
