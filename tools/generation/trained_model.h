// Trained model: a language model's layers with the weights of a checkpoint, to
// be used and not trained any more.

#ifndef TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_
#define TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/registry.h"

namespace tandem {

struct TrainedModelOptions {
  std::string checkpoint;  // a file, or the folder that --save_dir was
  std::string name;        // of models/registry.h; empty: the checkpoint's
  // Instead of the named model's. With none, and no name, those with which it
  // was trained.
  TransformerSizes sizes;
};

struct TrainedModel {
  LayerList layers;  // on the CPU, in evaluation mode
  TokenLimits limits;
};

// Reads nothing of the optimizer's state. InvalidArgument for a model that
// takes no token numbers and for a checkpoint of another model or other sizes;
// NotFound, DataLoss and others as OpenCheckpoint.
absl::StatusOr<TrainedModel> LoadTrainedModel(
    const TrainedModelOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_
