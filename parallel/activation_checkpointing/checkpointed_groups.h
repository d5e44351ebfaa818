// Checkpointed groups: which layers of a model compute their activations again
// in backward, and which of them together. Names alone, no tensors.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINTED_GROUPS_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINTED_GROUPS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/activation_checkpointing.h"

namespace tandem {

// The groups among layers of these names, in order; empty if it is off.
// InvalidArgument for what is no regular expression, and for a negative number.
absl::StatusOr<std::vector<LayerRange>> CheckpointedGroups(
    const std::vector<std::string>& names,
    const SelectiveCheckpointing& selective);

// InvalidArgument, with the names there are, unless some layer of the whole
// model is meant.
absl::Status CheckSomeLayerIsMeant(const std::vector<std::string>& names,
                                   const SelectiveCheckpointing& selective);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINTED_GROUPS_H_
