// Dicts as trees (tree_values.h): std::map<std::string, T>, c10::Dict and
// torch::OrderedDict of std::string and Tensor.

#ifndef TANDEM_MODELS_MODULES_TREE_DICTS_H_
#define TANDEM_MODELS_MODULES_TREE_DICTS_H_

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/ordered_dict.h>

#include <map>
#include <string>

#include "models/modules/tree_values.h"

namespace tandem {
namespace tree_values_internal {

inline c10::impl::GenericDict EmptyDict() {
  return c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get());
}

// Calls visit(key, value, path) for each item of a dict with strings as keys.
template <typename Visit>
void ForEachItem(const c10::IValue& tree, const std::string& path,
                 const Visit& visit) {
  Check(tree.isGenericDict(), tree, path, "a dict");
  for (const auto& item : tree.toGenericDict()) {
    Check(item.key().isString(), item.key(), path + "'s key", "a string");
    const std::string& key = item.key().toStringRef();
    visit(key, item.value(), path + "['" + key + "']");
  }
}

// In a dict of LibTorch's.
template <typename Dict>
Dict TensorsOf(const c10::IValue& tree, const std::string& path) {
  Dict value;
  ForEachItem(tree, path,
              [&](const std::string& key, const c10::IValue& item,
                  const std::string& where) {
                value.insert(key, FromTree<at::Tensor>(item, where));
              });
  return value;
}

}  // namespace tree_values_internal

template <typename T>
struct TreeValue<std::map<std::string, T>> {
  static c10::IValue To(const std::map<std::string, T>& value) {
    auto dict = tree_values_internal::EmptyDict();
    for (const auto& each : value) dict.insert(each.first, TreeOf(each.second));
    return dict;
  }
  static std::map<std::string, T> From(const c10::IValue& tree,
                                       const std::string& path) {
    std::map<std::string, T> value;
    tree_values_internal::ForEachItem(
        tree, path,
        [&](const std::string& key, const c10::IValue& item,
            const std::string& where) {
          value[key] = FromTree<T>(item, where);
        });
    return value;
  }
};

template <>
struct TreeValue<c10::Dict<std::string, at::Tensor>> {
  using Dict = c10::Dict<std::string, at::Tensor>;
  static c10::IValue To(const Dict& value) { return value; }
  static Dict From(const c10::IValue& tree, const std::string& path) {
    return tree_values_internal::TensorsOf<Dict>(tree, path);
  }
};

template <>
struct TreeValue<torch::OrderedDict<std::string, at::Tensor>> {
  using Dict = torch::OrderedDict<std::string, at::Tensor>;
  static c10::IValue To(const Dict& value) {
    auto dict = tree_values_internal::EmptyDict();
    for (const auto& each : value) dict.insert(each.key(), each.value());
    return dict;
  }
  static Dict From(const c10::IValue& tree, const std::string& path) {
    return tree_values_internal::TensorsOf<Dict>(tree, path);
  }
};

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_TREE_DICTS_H_
