#include "models/modules/module_call.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/modules/tree_values.h"

namespace tandem {
namespace {

using at::Tensor;
using torch::nn::AnyModule;
using torch::nn::AnyValue;

using Tensors2 = std::tuple<Tensor, Tensor>;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;
using Tensors4 = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using TensorMapping = std::map<std::string, Tensor>;

template <typename T>
AnyValue TreeAsAny(const c10::IValue& tree) {
  return AnyValue(FromTree<T>(tree, "argument 0"));
}

AnyValue AnyOfTuple(const c10::IValue& tree) {
  switch (tree.toTupleRef().elements().asArrayRef().size()) {
    case 3:
      return TreeAsAny<Tensors3>(tree);
    case 4:
      return TreeAsAny<Tensors4>(tree);
    default:
      return TreeAsAny<Tensors2>(tree);
  }
}

AnyValue TreeArgument(const c10::IValue& tree) {
  if (tree.isTuple()) return AnyOfTuple(tree);
  if (tree.isList()) return TreeAsAny<std::vector<Tensor>>(tree);
  if (tree.isGenericDict()) return TreeAsAny<TensorMapping>(tree);
  return TreeAsAny<Tensor>(tree);
}

template <typename... Known>
std::optional<c10::IValue> ResultAs(AnyValue& value) {
  std::optional<c10::IValue> tree;
  const auto try_one = [&](const auto* typed) {
    if (typed != nullptr) tree = ToTree(*typed);
  };
  (try_one(value.template try_get<Known>()), ...);
  return tree;
}

c10::IValue TreeResult(AnyValue value) {
  const std::optional<c10::IValue> tree =
      ResultAs<Tensor, Tensors2, Tensors3, Tensors4, std::vector<Tensor>,
               TensorMapping, c10::Dict<std::string, Tensor>,
               torch::OrderedDict<std::string, Tensor>>(value);
  TORCH_CHECK_TYPE(tree.has_value(), "it gives ",
                   c10::demangle(value.type_info().name()),
                   ", which is no known tuple, list or dict of tensors: name "
                   "its class to LayersOf");
  return *tree;
}

}  // namespace

ModuleCall AnyModuleCall(const AnyModule& module) {
  return [any = module](const c10::IValue& input) mutable {
    return TreeResult(any.any_forward(TreeArgument(input)));
  };
}

ModuleCall SequentialCall(
    const std::shared_ptr<torch::nn::SequentialImpl>& sequential) {
  return [sequential](const c10::IValue& input) {
    std::optional<AnyValue> value(TreeArgument(input));
    for (AnyModule& each : *sequential) {
      value.emplace(each.any_forward(*std::move(value)));
    }
    return TreeResult(*std::move(value));
  };
}

}  // namespace tandem
