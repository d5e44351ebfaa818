#include "core/model/hidden_matrices.h"

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

using Tensors = std::set<const c10::TensorImpl*>;

void Add(const std::vector<at::Tensor>& parameters, Tensors& tensors) {
  for (const at::Tensor& each : parameters) {
    tensors.insert(each.unsafeGetTensorImpl());
  }
}

// Parameters of embeddings and of the head. A tied weight is one tensor in all
// its layers.
Tensors EndsOfModel(const LayerList& layers) {
  Tensors ends;
  std::vector<at::Tensor> head;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    const std::vector<at::Tensor> own = layer.module->parameters();
    if (!own.empty()) head = own;
    for (const std::shared_ptr<torch::nn::Module>& module :
         layer.module->modules()) {
      if (absl::StrContains(module->name(), "Embedding")) {
        Add(module->parameters(), ends);
      }
    }
  }
  Add(head, ends);
  return ends;
}

}  // namespace

std::set<std::string> HiddenMatrices(const LayerList& layers) {
  const Tensors ends = EndsOfModel(layers);
  std::set<std::string> names;
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    if (parameter.dim() == 2 && parameter.requires_grad() &&
        ends.count(parameter.unsafeGetTensorImpl()) == 0) {
      names.insert(name);
    }
  }
  return names;
}

}  // namespace tandem
