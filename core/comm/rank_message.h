// Point-to-point message between two ranks of a group.

#ifndef TANDEM_CORE_COMM_RANK_MESSAGE_H_
#define TANDEM_CORE_COMM_RANK_MESSAGE_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// Matched by its tag (0 or more) and, of one tag, by the order of sending; on
// streams, where there are no tags, by the order alone. Both sides' tensors
// have as many bytes.
struct RankMessage {
  bool sends = false;
  at::Tensor tensor;
  int peer = 0;  // another rank than this one
  int tag = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_RANK_MESSAGE_H_
