// Model of a job: its layers, none of which is made yet, and its loss.

#ifndef TANDEM_TOOLS_TRAINER_JOB_MODEL_H_
#define TANDEM_TOOLS_TRAINER_JOB_MODEL_H_

#include <optional>

#include "absl/status/statusor.h"
#include "core/checkpoint/row_parts.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "datasets/dataset.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// For samples like those of `data`. InvalidArgument where the model does not
// take them. `transformer`: that of the job, which counts where a folder says
// what it is; else --model does.
absl::StatusOr<LayerSpecs> LayersOf(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data);

// Which parameters of those layers are rows of one weight (--vocab_parallel).
absl::StatusOr<RowParts> RowPartsOf(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    const Dataset& data);

LossFunction LossOf(const TrainOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_MODEL_H_
