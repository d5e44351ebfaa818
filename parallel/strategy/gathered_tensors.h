// Gathered tensors: those of several ranks as one stream on one of them.

#ifndef TANDEM_PARALLEL_STRATEGY_GATHERED_TENSORS_H_
#define TANDEM_PARALLEL_STRATEGY_GATHERED_TENSORS_H_

#include "absl/status/status.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/comm/communicator.h"

namespace tandem {

// On rank 0 `sink` gets every rank's tensors, its own as they are, others' one
// at a time, in the host's memory: no rank ever holds more than one tensor of
// another's, and none on its device. Slices, which together make up a tensor,
// come joined to it, row-major. On other ranks `sink` only tells the order,
// which must be the same on all. Tensors are dense, and no two ranks have one
// of the same name but for slices. DataLoss, naming the tensor, where slices
// are missing. Collective; a rank that fails must abort the group, since others
// may wait for it.
absl::Status StreamToRank0(const StatePart& mine, Communicator& group,
                           TensorSink& sink);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_GATHERED_TENSORS_H_
