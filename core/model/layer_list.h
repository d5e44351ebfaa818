// Layer list: a model, or a stage of one, once it is made, and what is done
// with all of its layers together.
//
// Not thread-safe where two threads use the same layers. Exceptions of LibTorch
// (an input of the wrong shape) pass through.

#ifndef TANDEM_CORE_MODEL_LAYER_LIST_H_
#define TANDEM_CORE_MODEL_LAYER_LIST_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/named_tensors.h"
#include "core/model/layer.h"

namespace tandem {

// Makes each layer, on the CPU and in float32, in the mode in which its factory
// leaves it: training, as a rule. The values depend on `seed` and the names
// alone: part of a model's specs gives the same as all of them. A tied
// parameter is the same tensor as the one that it is tied to, if that is among
// these layers, else another with the same values.
LayerList MakeLayers(const LayerSpecs& specs, uint64_t seed);

// Specs of layers that are made already: making gives these same layers,
// whatever the seed. Weights that several of them share go on being shared.
LayerSpecs SpecsOf(const LayerList& layers);

// Sends `input` through one layer, which leaves its skips in `skips`. Those
// that it takes are there afterwards, too: who runs the layers drops them
// behind the last that does (core/model/layer_links.h). Throws c10::Error for a
// skip or a further input that is not there, for a layer that does not do what
// its links say, and for one that gives or leaves an undefined tensor.
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
std::vector<LayerLinks> LinksOf(const LayerList& layers);
std::vector<LayerLinks> LinksOf(const LayerSpecs& specs);

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

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_LIST_H_
