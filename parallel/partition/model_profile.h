// Model profile: what each layer costs, as numbers, of which cuts are made
// (balance.h) and a step is predicted (parallel/schedule/prediction.h).

#ifndef TANDEM_PARALLEL_PARTITION_MODEL_PROFILE_H_
#define TANDEM_PARALLEL_PARTITION_MODEL_PROFILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parallel/partition/balance.h"

namespace tandem {

// The profile of one layer and one microbatch.
struct LayerProfile {
  std::string name;
  // Seconds, medians.
  double forward = 0;
  // All of backward, for a layer that is not taken apart
  // (ProfileOptions::splits_backward).
  double backward_input = 0;
  double backward_weight = 0;
  int64_t parameter_bytes = 0;
  // Parameters, buffers, gradients, optimizer state; tied weights included.
  int64_t state_bytes = 0;
  // What the layer makes and backward needs, be it this layer's or that of one
  // further on: distinct storages, without parameters and buffers. A stage
  // keeps its input beside that.
  int64_t activation_bytes = 0;
  // What goes to the next layer: its input, and skips on their way past it.
  int64_t output_bytes = 0;
  // The state of each parameter that several layers share, by a number of its
  // own: layers with the same number share it.
  std::map<int, int64_t> shared_state = {};
};

struct ModelProfile {
  int64_t input_bytes = 0;  // the first layer's, and further inputs
  std::vector<LayerProfile> layers;
  // How many times as many samples a microbatch of an evaluation has; 0:
  // nothing is evaluated.
  double evaluation_scale = 0;
};

// For CutsByTime. An evaluation has no graph: of a layer there is at once its
// input, its output and what it makes on the way.
std::vector<LayerCost> CostsOf(const ModelProfile& profile);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_MODEL_PROFILE_H_
