#include "core/base/tensor_tree.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

using c10::IValue;

std::string KeyText(const IValue& key) {
  return key.isString() ? absl::StrCat("['", key.toStringRef(), "']")
         : key.isInt()  ? absl::StrCat("[", key.toInt(), "]")
                        : "[key]";
}

absl::StatusOr<std::vector<IValue>> MapEach(c10::ArrayRef<IValue> elements,
                                            const std::string& path,
                                            TensorMap map) {
  std::vector<IValue> mapped;
  for (size_t i = 0; i < elements.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(
        IValue one,
        MapTensors(elements[i], absl::StrCat(path, "[", i, "]"), map));
    mapped.push_back(std::move(one));
  }
  return mapped;
}

absl::StatusOr<IValue> MapList(const c10::List<IValue>& list,
                               const std::string& path, TensorMap map) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<IValue> elements,
                          MapEach(list.vec(), path, map));
  c10::impl::GenericList mapped(list.elementType());
  for (const IValue& each : elements) mapped.push_back(each);
  return IValue(mapped);
}

absl::StatusOr<IValue> MapDict(const c10::impl::GenericDict& dict,
                               const std::string& path, TensorMap map) {
  c10::impl::GenericDict mapped(dict.keyType(), dict.valueType());
  for (const auto& item : dict) {
    TANDEM_ASSIGN_OR_RETURN(
        const IValue one,
        MapTensors(item.value(), absl::StrCat(path, KeyText(item.key())), map));
    mapped.insert(item.key(), one);
  }
  return IValue(mapped);
}

}  // namespace

absl::StatusOr<IValue> MapTensors(const IValue& tree, const std::string& path,
                                  TensorMap map) {
  if (tree.isTensor()) {
    TANDEM_ASSIGN_OR_RETURN(at::Tensor mapped, map(tree.toTensor(), path));
    return IValue(std::move(mapped));
  }
  if (tree.isTuple()) {
    TANDEM_ASSIGN_OR_RETURN(
        std::vector<IValue> elements,
        MapEach(tree.toTupleRef().elements().asArrayRef(), path, map));
    return IValue(c10::ivalue::Tuple::create(std::move(elements)));
  }
  if (tree.isList()) return MapList(tree.toList(), path, map);
  if (tree.isGenericDict()) return MapDict(tree.toGenericDict(), path, map);
  return absl::InvalidArgumentError(
      absl::StrCat("'", path, "' is of type ", tree.tagKind(),
                   ": expected a tensor, or a tuple, list or dict of tensors"));
}

}  // namespace tandem
