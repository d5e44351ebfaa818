#include "core/meta/shapes.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <cstddef>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

// A key that LibTorch keeps for tensors of this kind, ahead of autograd's and
// all devices', and for which it has no kernels itself.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

thread_local c10::Device where = c10::Device(c10::kMeta);

// Operators that make tensors take `device`, which is None for the default.
void PutThere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "device") {
      (*stack)[first + i] = where;
    }
  }
}

void CallThere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  PutThere(op, stack);
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&CallThere>());
}

}  // namespace

MetaScope::MetaScope(c10::Device device) : outer_(where), guard_(kKey) {
  where = device;
}

MetaScope::~MetaScope() { where = outer_; }

namespace {

TensorShape MakeTensorShape(const NamedTensors::value_type& tensor,
                            size_t layer) {
  TensorShape shape;
  shape.name = tensor.first;
  shape.sizes = tensor.second.sizes().vec();
  shape.dtype = tensor.second.scalar_type();
  shape.layer = layer;
  return shape;
}

std::string TiedTo(const LayerLinks& links, const std::string& name) {
  for (const auto& [own, other] : links.ties) {
    if (name == own) return other;
  }
  return "";
}

}  // namespace

int64_t TensorShape::numel() const { return c10::multiply_integers(sizes); }

absl::StatusOr<std::vector<TensorShape>> ModelShapes(const LayerSpecs& specs) {
  const MetaScope no_storage;
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers,
                          MakeModelLayers(specs, /*seed=*/0));
  std::vector<TensorShape> shapes;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const auto& parameter : NamedParameters({layers[i]})) {
      shapes.push_back(MakeTensorShape(parameter, i));
      shapes.back().tied_to = TiedTo(
          layers[i].links, parameter.first.substr(layers[i].name.size() + 1));
    }
    for (const auto& buffer : NamedBuffers({layers[i]})) {
      shapes.push_back(MakeTensorShape(buffer, i));
      shapes.back().is_buffer = true;
    }
  }
  return shapes;
}

absl::StatusOr<TraitsByName> ModelParameterTraits(const LayerSpecs& specs) {
  const MetaScope no_storage;
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers,
                          MakeModelLayers(specs, /*seed=*/0));
  return NamedTraits(layers);
}

int64_t CountParameters(const std::vector<TensorShape>& shapes) {
  int64_t count = 0;
  for (const TensorShape& shape : shapes) {
    if (!shape.is_buffer && shape.tied_to.empty()) count += shape.numel();
  }
  return count;
}

}  // namespace tandem
