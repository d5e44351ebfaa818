// Slot slice: the elements of one parameter that a rank has of a flat tensor
// whose ranks have shares, as a checkpoint has them.

#ifndef TANDEM_PARALLEL_OPTIM_SLOT_SLICE_H_
#define TANDEM_PARALLEL_OPTIM_SLOT_SLICE_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/status.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

// A rank's share of a flat tensor.
struct FlatShare {
  ElementSpan span;
  at::Tensor mine;        // [span.length()]
  bool is_first = false;  // whose parameters without elements are
};

// Whether the share has elements of the slot, or an empty one is its own.
bool HoldsPart(const FlatSlot& slot, const FlatShare& share);

// Adds what the share has of the slot, under that name, and where it lies in
// the parameter. Nothing where it has nothing of it.
void AddSlice(const FlatSlot& slot, const FlatShare& share,
              const std::string& name, StatePart* part);

// Keeps what the share has of the slot, of values of the parameter's sizes. A
// whole parameter lies in memory in the meantime. Errors are ReadInto's.
absl::Status ReadSlice(const StoredTensor& values, const FlatSlot& slot,
                       const FlatShare& share);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_SLOT_SLICE_H_
