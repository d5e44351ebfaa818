// Trained model: a language model's layers with the weights of a checkpoint, or
// of a folder of Hugging Face's, to be used and not trained any more.

#ifndef TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_
#define TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/registry.h"
#include "tools/generation/placement.h"

namespace tandem {

struct TrainedModelOptions {
  // A file, or the folder that --save_dir was, or a folder with config.json and
  // weights as Hugging Face's libraries write them.
  std::string checkpoint;
  std::string name;  // of models/registry.h; empty: the checkpoint's
  // Instead of the named model's. With none, and no name, those with which it
  // was trained.
  TransformerSizes sizes;
  ModelPlacement placement;
};

struct TrainedModel {
  LayerList layers;  // placed, in evaluation mode
  TokenLimits limits;
  // How many tokens the texts had that it was trained on; 0: nobody says.
  int64_t texts_vocabulary = 0;
  // Its config.json and generation_config.json; empty: there is none.
  std::string config;
  std::string generation_config;
};

// Whether `path` is a folder of Hugging Face's: it has a config.json.
bool IsModelFolder(const std::string& path);

// Reads nothing of the optimizer's state. InvalidArgument for a model that
// takes no token numbers, for a checkpoint of another model or other sizes, and
// for a name or sizes beside a folder that says them; NotFound, DataLoss and
// others as OpenCheckpoint and OpenWeights.
absl::StatusOr<TrainedModel> LoadTrainedModel(
    const TrainedModelOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_
