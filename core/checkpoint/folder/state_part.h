// State part: what one rank writes of a checkpoint. Tensors that it has whole,
// and slices of those that ranks share (a sharded optimizer's state).

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_STATE_PART_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_STATE_PART_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/tensors.h"

namespace tandem {

// Where neighbours in a tensor's memory lie in the whole tensor. Flat buffers
// are cut by memory, and a parameter's order there need not be row-major
// (channels-last).
struct TensorSlice {
  std::vector<int64_t> sizes;    // of the whole tensor
  std::vector<int64_t> strides;  // in which it is dense
  int64_t begin = 0;             // the slice's first element, in that order
};

struct StatePart {
  // By their names in a checkpoint (core/checkpoint/checkpoint.h), on any
  // device; slices are [length].
  NamedTensors tensors;
  std::map<std::string, TensorSlice> slices;  // of those that are one, by name
};

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_STATE_PART_H_
