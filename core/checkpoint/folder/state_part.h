// State part: what one rank writes of a checkpoint. Tensors that it has whole,
// and slices of those that ranks share (a sharded optimizer's state) or have
// shards of (tensor parallelism).

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_STATE_PART_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_STATE_PART_H_

#include <map>
#include <string>

#include "core/base/tensors.h"
#include "core/checkpoint/tensor_slice.h"

namespace tandem {

struct StatePart {
  // By their names in a checkpoint (core/checkpoint/checkpoint.h), on any
  // device; what is a slice is of any shape, whose row-major order is the
  // slice's.
  NamedTensors tensors;
  std::map<std::string, TensorSlice> slices;  // of those that are one, by name
};

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_STATE_PART_H_
