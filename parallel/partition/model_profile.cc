#include "parallel/partition/model_profile.h"

#include <cmath>

namespace tandem {

std::vector<LayerCost> CostsOf(const ModelProfile& profile) {
  std::vector<LayerCost> costs;
  int64_t input_bytes = profile.input_bytes;
  for (const LayerProfile& layer : profile.layers) {
    const int64_t in_training =
        input_bytes + layer.output_bytes + layer.activation_bytes;
    const double evaluation =
        profile.evaluation_scale * static_cast<double>(in_training);
    costs.push_back(
        {layer.forward, layer.backward_input + layer.backward_weight,
         layer.state_bytes, layer.activation_bytes, layer.output_bytes,
         input_bytes, static_cast<int64_t>(std::ceil(evaluation))});
    input_bytes = layer.output_bytes;
  }
  return costs;
}

}  // namespace tandem
