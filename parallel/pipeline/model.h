// Pipeline model: a model cut into a schedule's stages, those of one rank, made
// and placed.

#ifndef TANDEM_PARALLEL_PIPELINE_MODEL_H_
#define TANDEM_PARALLEL_PIPELINE_MODEL_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/context/compute_context.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "parallel/activation_checkpointing/checkpointed_groups.h"
#include "parallel/balance/cut.h"
#include "parallel/pipeline/channels.h"
#include "parallel/pipeline/executor.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// A parameter that a stage has a copy of.
struct StageParameter {
  int stage = 0;
  std::string name;        // in full
  bool is_shared = false;  // one tensor with an earlier one of its stage
};

// Tied weights that lie in several stages. The first member is the parameter
// that the others are tied to; each that is not shared has a tensor of its own,
// and all are kept alike by summing their gradients. (Within the first member's
// stage they are one tensor, and no group, unless copies are asked for.)
using TiedGroup = std::vector<StageParameter>;

struct PipelineModelOptions {
  Cuts cuts;  // one less than the schedule's stages
  uint64_t seed = 0;
  bool splits_backward = false;
  int weight_gradient_batch = 1;
  // For bits that do not depend on the cut: tied weights are copies within a
  // stage, too; running statistics are recorded; tensors lie in memory behind
  // every layer as behind a cut; and layers that cannot give such bits are
  // refused (core/model/reproducible.h).
  bool reproducible = false;
  // See StageOptions, and core/precision/mixed_precision.h.
  std::optional<c10::ScalarType> param_dtype;
  std::optional<c10::ScalarType> buffer_dtype;
  // Activations are computed again: layers that would draw other numbers then
  // are refused.
  bool recomputes = false;
  // The same of some layers.
  SelectiveCheckpointing selective;
  // With whom a stage's layers are divided (core/model/axis/tensor_parallel.h);
  // no function: with nobody.
  std::function<std::shared_ptr<const TensorParallel>(int stage)>
      tensor_parallel;
  // Parameters that are trained stay in the host's memory, whatever the stages'
  // devices: who shards them moves them (MoveUntrained).
  bool leaves_trained = false;
};

// A parameter that is tied to a tied one is in that one's group.
// InvalidArgument for ties to a parameter of no earlier layer, or of one of two
// in different stages; the message names it. Parameters are known by their
// layers' names alone here: "block.0.weight" may be of layer "block" or of
// "block.0".
absl::StatusOr<std::vector<TiedGroup>> TiedAcross(const LayerSpecs& specs,
                                                  const Cuts& cuts,
                                                  bool copies_ties = false);

// Makes the layers of the stages that the layout has on this rank, on their
// devices; null for others. InvalidArgument when cuts, schedule, layout, skip
// connections or what the loss takes of them do not fit, for two layers of one
// name, and where the last stage has no loss; errors of moving a layer name it.
// The loss's names are needed on every rank.
absl::StatusOr<PipelineExecutor::Stages> MakeStages(
    const LayerSpecs& specs, const Schedule& schedule,
    const PipelineLayout& layout, const PipelineModelOptions& options,
    const LossFunction& loss);

// All that stages here have, in the order of the model.
NamedTensors NamedParameters(const PipelineExecutor::Stages& stages);
NamedTensors NamedBuffers(const PipelineExecutor::Stages& stages);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_MODEL_H_
