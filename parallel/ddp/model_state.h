// Model state: parameters and buffers as a whole, alike on all ranks, replaced
// from a file.

#ifndef TANDEM_PARALLEL_DDP_MODEL_STATE_H_
#define TANDEM_PARALLEL_DDP_MODEL_STATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/comm/communicator.h"

namespace tandem {

// InvalidArgument unless `state` and `model` have the same names, shapes and
// dtypes; the message names the first that differs. Floating-point values may
// have another precision (as with load_state_dict). Else what the store says of
// values that are damaged.
absl::Status CheckModelState(const StoredTensors& state,
                             const NamedTensors& model);

// Copies each tensor of `state` into its counterpart in `model`, whose dtype it
// takes, one after the other. Nothing is changed where CheckModelState has an
// error.
absl::Status CopyModelState(const StoredTensors& state,
                            const NamedTensors& model);

// What ranks compare of a model: a line for each tensor, of its name, shape,
// dtype and whether it requires a gradient.
std::string DescribeModel(const NamedTensors& model);

// InvalidArgument, naming the ranks, which messages call `rank` and `first`,
// and the first tensor of which descriptions say different things.
absl::Status ModelsDiffer(int rank, const std::string& theirs, int first,
                          const std::string& firsts);

// InvalidArgument, on every rank alike, unless all ranks of `communicator` have
// the same names, shapes, dtypes and requires_grad, in the same order; the
// message names the first rank and tensor that differ from rank 0's.
// Collective.
absl::Status CheckSameModel(const NamedTensors& model,
                            Communicator& communicator);

// Every rank's `tensors` take the values of rank `root`'s. They must be alike
// on all ranks, but for their devices' numbers. One broadcast serves all
// tensors of one device and dtype. Collective.
absl::Status BroadcastFrom(int root, const std::vector<at::Tensor>& tensors,
                           Communicator& communicator,
                           const CollectivePurpose& purpose = nullptr);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_MODEL_STATE_H_
