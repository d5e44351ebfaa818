// What a model's state looks like, for tests that state it in full.

#ifndef TANDEM_TESTS_MODELS_STATE_SHAPES_H_
#define TANDEM_TESTS_MODELS_STATE_SHAPES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/layer_list.h"

namespace tandem {

using Shapes = std::map<std::string, std::vector<int64_t>>;

inline Shapes ParameterShapes(const LayerSpecs& specs) {
  Shapes shapes;
  for (const auto& item : NamedParameters(MakeLayers(specs, /*seed=*/1))) {
    shapes[item.first] = item.second.sizes().vec();
  }
  return shapes;
}

inline std::map<std::string, at::Tensor> ParametersByName(
    const LayerList& layers) {
  const NamedTensors tensors = NamedParameters(layers);
  return {tensors.begin(), tensors.end()};
}

inline std::vector<std::string> LayerNames(const LayerSpecs& specs) {
  std::vector<std::string> names;
  for (const LayerSpec& spec : specs) names.push_back(spec.name);
  return names;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_MODELS_STATE_SHAPES_H_
