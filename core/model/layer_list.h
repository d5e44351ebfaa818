// Layer list: a model, or a stage of one: how it is made of its specs, and what
// is done with all of its layers together.
//
// Not thread-safe where two threads use the same layers. Exceptions of LibTorch
// (an input of the wrong shape) pass through.

#ifndef TANDEM_CORE_MODEL_LAYER_LIST_H_
#define TANDEM_CORE_MODEL_LAYER_LIST_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/model/layer.h"
#include "core/model/module_traits.h"

namespace tandem {

// Makes each layer, on the CPU and in float32, in the mode in which its factory
// leaves it: training, as a rule. The values depend on `seed` and the names
// alone: part of a model's specs gives the same as all of them. A tied
// parameter is the same tensor as the one that it is tied to, if that is among
// these layers, else another with the same values.
LayerList MakeLayers(const LayerSpecs& specs, uint64_t seed);

// Specs of layers that are made already: making gives these same layers,
// whatever the seed. Weights that several of them share go on being shared.
LayerSpecs SpecsFromLayers(const LayerList& layers);

// Sends `input` through one layer, which leaves its skips in `skips`. The skips
// that it takes are there afterwards, too: the caller drops them behind the
// last that does (core/model/layer_links.h). Throws c10::Error for a skip or a
// further input that is not there, for a layer that does not do what its links
// say, and for one that gives or leaves an undefined tensor.
at::Tensor RunLayer(const Layer& layer, const at::Tensor& input, Skips& skips);

// Sends `input` through all layers; an empty list gives it back. `further`:
// what layers read of the batch beside it, on their devices
// (core/model/batch_inputs.h).
at::Tensor Forward(const LayerList& layers, const at::Tensor& input,
                   Skips further = {});

// The same with what layers have left for others, as far as the caller takes
// it: the skips of these names (the loss's: LossNames::outputs).
std::pair<at::Tensor, Skips> ForwardWithSkips(
    const LayerList& layers, const at::Tensor& input, Skips further,
    const std::vector<std::string>& names);

// What each layer shares with others.
std::vector<LayerLinks> LinksByLayer(const LayerList& layers);
std::vector<LayerLinks> LinksByLayer(const LayerSpecs& specs);

// Parameters (buffers: BatchNorm's running statistics) by full name, in the
// order of the layers and, within one, in that of torch::nn::Module's
// named_parameters(). They alias the live tensors.
NamedTensors NamedParameters(const LayerList& layers);
NamedTensors NamedBuffers(const LayerList& layers);
// Traits of the parameters that have unusual ones, by full name.
TraitsByName NamedTraits(const LayerList& layers);

// torch::nn::Module::train(on) for every layer.
void SetTraining(const LayerList& layers, bool on);

// Parameters and buffers go to `device`, where they count as parameters' memory
// (core/device/memory_category.h). An error names the layer; those before it
// have been moved. LayerList is core/model/layer.h's.
absl::Status MoveLayers(const LayerList& layers, c10::Device device);
// The same of buffers and of parameters that are not trained alone: who shards
// the others brings them there in parts.
absl::Status MoveUntrained(const LayerList& layers, c10::Device device);

// Layer list as a module: what DistributedDataParallel and DataParallel take.

// A layer list as the module that DistributedDataParallel and DataParallel
// take.
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

// A wrapper around what a spec does to make its layer. Calls `make` once, and
// gives its layer, or one made of it.
using AroundMake = std::function<Layer(absl::FunctionRef<Layer()> make)>;

// The same spec, but that its layer, tied to others or not, is made through
// `around`.
LayerSpec MadeThrough(const AroundMake& around, LayerSpec spec);
LayerSpecs MadeThrough(const AroundMake& around, LayerSpecs specs);

// Whether each layer has a name of its own: two of one name would have the same
// parameters' names. InvalidArgument, naming both by number.
absl::Status CheckLayerNames(const std::vector<std::string>& names);
absl::Status CheckLayerNames(const LayerSpecs& specs);
absl::Status CheckLayerNames(const LayerList& layers);

// MakeLayers of a whole model, with its names
// checked. What a layer's own `make` throws (a parameter without a rule for its
// initial values, say) becomes an error that names the layer.
absl::StatusOr<LayerList> MakeModelLayers(const LayerSpecs& specs,
                                          uint64_t seed);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_LIST_H_
