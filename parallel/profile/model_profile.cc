#include "parallel/profile/model_profile.h"

#include <cmath>
#include <cstddef>

namespace tandem {

std::vector<int64_t> EvaluationBytes(const ModelProfile& profile) {
  std::vector<int64_t> bytes;
  int64_t input_bytes = profile.input_bytes;
  for (const LayerProfile& layer : profile.layers) {
    const int64_t in_training =
        input_bytes + layer.output_bytes + layer.activation_bytes;
    bytes.push_back(static_cast<int64_t>(std::ceil(
        profile.evaluation_scale * static_cast<double>(in_training))));
    input_bytes = layer.output_bytes;
  }
  return bytes;
}

std::vector<LayerCost> CostsOf(const ModelProfile& profile) {
  const std::vector<int64_t> evaluation = EvaluationBytes(profile);
  std::vector<LayerCost> costs;
  int64_t input_bytes = profile.input_bytes;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerProfile& layer = profile.layers[i];
    costs.push_back({layer.forward,
                     layer.backward_input + layer.backward_weight,
                     layer.state_bytes, layer.activation_bytes,
                     layer.output_bytes, input_bytes, evaluation[i]});
    input_bytes = layer.output_bytes;
  }
  return costs;
}

std::vector<StageCost> StageCostsOf(const ModelProfile& profile,
                                    const Cuts& cuts) {
  std::vector<StageCost> stages;
  for (const LayerRange& part :
       PartsOf(cuts, static_cast<int64_t>(profile.layers.size()))) {
    StageCost& stage = stages.emplace_back(StageCost{0, 0, 0});
    for (int64_t i = part.begin; i < part.end; ++i) {
      stage.forward += profile.layers[i].forward;
      stage.backward_input += profile.layers[i].backward_input;
      stage.backward_weight += profile.layers[i].backward_weight;
    }
  }
  return stages;
}

}  // namespace tandem
