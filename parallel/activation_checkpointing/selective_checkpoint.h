// Selective activation checkpointing: some layers of a model, by their names,
// or in groups, compute their activations again in backward. (PyTorch's
// apply_activation_checkpointing with a check function, and
// checkpoint_sequential.)

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SELECTIVE_CHECKPOINT_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SELECTIVE_CHECKPOINT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/layer.h"
#include "core/model/layer_flow.h"
#include "parallel/activation_checkpointing/checkpointed_groups.h"
#include "parallel/activation_checkpointing/options.h"

namespace tandem {

// What goes into `layers` and comes out of them, as `run` has it, which sends
// it through all of them; again in backward. Buffers change once. `options`
// gets a name from the layers.
LayerFlow CheckpointLayers(CheckpointOptions options,
                           absl::Span<const Layer> layers,
                           std::function<LayerFlow(LayerFlow)> run,
                           LayerFlow flow);

// The same model, with checkpointed groups: the last layer of a group runs all
// of it, and the others of it give on what they get. Modules, and so parameters
// and their names, stay, and are shared with `layers`. For Forward
// (core/model/layer_list.h) and whatever wraps a list of layers; it is not to
// be cut any more (the mesh strategy has options of its own). `loss_takes`:
// LossNames::outputs.
//
// InvalidArgument as CheckpointedGroups has it, and if no layer is meant.
absl::StatusOr<LayerList> SelectiveCheckpoint(
    LayerList layers, const SelectiveCheckpointing& selective,
    const CheckpointOptions& options = {},
    const std::vector<std::string>& loss_takes = {});

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SELECTIVE_CHECKPOINT_H_
