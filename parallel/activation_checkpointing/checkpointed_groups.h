// Checkpointed groups: which layers of a model compute their activations again
// in backward, and which of them together. Names alone, no tensors.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINTED_GROUPS_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINTED_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/balance/cut.h"

namespace tandem {

// Which layers, and how they are grouped. A group keeps its input alone, and is
// computed again as a whole: few large groups keep little for long, and much
// while one of them is computed again.
struct SelectiveCheckpointing {
  // A regular expression (ECMAScript's) that the name matches, in part at least
  // ("^transformer\\.h"). Empty: every layer, if `every` says so, else none.
  std::string layers = "";
  // So many neighbours are one group, the last one fewer; 0: each layer is one.
  int64_t every = 0;

  bool is_on() const { return !layers.empty() || every > 0; }
};

// The groups among layers of these names, in order; empty if it is off.
// InvalidArgument for what is no regular expression, and for a negative number.
absl::StatusOr<std::vector<LayerRange>> CheckpointedGroups(
    const std::vector<std::string>& names,
    const SelectiveCheckpointing& selective);

// That some layer of the whole model is meant. InvalidArgument with the names
// there are.
absl::Status CheckSomeLayerIsMeant(const std::vector<std::string>& names,
                                   const SelectiveCheckpointing& selective);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINTED_GROUPS_H_
