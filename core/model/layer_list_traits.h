// Layer list as a module: what DistributedDataParallel and DataParallel take.

#ifndef TANDEM_CORE_MODEL_LAYER_LIST_TRAITS_H_
#define TANDEM_CORE_MODEL_LAYER_LIST_TRAITS_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/named_tensors.h"
#include "core/model/layer.h"
#include "core/model/layer_list.h"
#include "core/model/module_traits.h"

namespace tandem {

template <>
struct ModuleTraits<LayerList> {
  static NamedTensors Parameters(const LayerList& layers) {
    return NamedParameters(layers);
  }
  static NamedTensors Buffers(const LayerList& layers) {
    return NamedBuffers(layers);
  }
  static at::Tensor Call(LayerList& layers, const at::Tensor& input,
                         const Skips& further = {}) {
    return tandem::Forward(layers, input, further);
  }
  // With the skips of these names.
  static std::pair<at::Tensor, Skips> Call(
      LayerList& layers, const at::Tensor& input, const Skips& further,
      const std::vector<std::string>& names) {
    return ForwardWithSkips(layers, input, further, names);
  }
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_LIST_TRAITS_H_
