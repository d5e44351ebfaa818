// Trained model: a language model's layers with the weights of a checkpoint, or
// of a folder of Hugging Face's, to be used and not trained any more.
//
// Device and dtype in which a trained model computes, as a user names them.

#ifndef TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_
#define TANDEM_TOOLS_GENERATION_TRAINED_MODEL_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/registry.h"

namespace tandem {

struct ModelPlacement {
  c10::Device device = c10::Device(c10::kCPU);
  c10::ScalarType dtype = c10::ScalarType::Float;
};

// --device as train has it (cpu, cuda, sim), of which the first is made the
// calling thread's current one, and --dtype: fp32, bf16, fp16 or fp64. Before
// any tensor is made. InvalidArgument for another name; DevicesOf's errors.
absl::StatusOr<ModelPlacement> ParsePlacement(const std::string& device,
                                              const std::string& dtype);

// Floating-point parameters and buffers take the dtype (transformers'
// torch_dtype: products and what is between them are of it, too), and all go to
// the device.
absl::Status Place(const ModelPlacement& placement, const LayerList& layers);

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
