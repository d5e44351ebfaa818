// Tree values: C++ values of tensors as trees, and back: what modules take and
// give, as a pipeline's messages and a batch carry it.
//
//   at::Tensor                                  a tensor
//   std::optional<Tensor>                       one that may be undefined
//   std::tuple, std::pair                       a tuple
//   std::vector                                 a list
//   std::map<std::string, T>, c10::Dict and
//   torch::OrderedDict of std::string, Tensor   a dict
//   c10::IValue                                 itself
//
// of any depth. For a struct of one's own specialise TreeValue in the namespace
// tandem.

#ifndef TANDEM_MODELS_MODULES_TREE_VALUES_H_
#define TANDEM_MODELS_MODULES_TREE_VALUES_H_

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <torch/ordered_dict.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Tree form: the structure of tuples, lists and dicts of tensors, without the
// tensors (torch.utils._pytree's TreeSpec). Trees are what
// core/base/tensor_tree.h goes through. Undefined tensors are
// part of the form: a tree that has another one undefined has another form.
class TreeForm {
 public:
  // The form of one tensor.
  TreeForm();

  // InvalidArgument for a tree without a defined tensor, and for what is
  // neither a tensor nor a tuple, list or dict of them.
  static absl::StatusOr<TreeForm> Of(const c10::IValue& tree);

  // Where the defined tensors are, in their order: "" of a tensor alone, "[1]",
  // "['mask']", "['views'][0]". At least one.
  const std::vector<std::string>& paths() const { return paths_; }

  // The defined tensors of `tree`, one for each path. InvalidArgument, with
  // what is there and what should be, for a tree of another form.
  absl::StatusOr<std::vector<at::Tensor>> Take(const c10::IValue& tree) const;

  // The tree of this form that has these tensors. Requires one for each path.
  c10::IValue Build(const std::vector<at::Tensor>& tensors) const;

 private:
  c10::IValue skeleton_;            // with undefined tensors everywhere
  std::vector<bool> defined_;       // by tensor of the skeleton
  std::vector<std::string> paths_;  // of the defined ones
};

inline constexpr char kInputTree[] = "input";
inline constexpr char kOutputTree[] = "output";
inline constexpr char kTargetTree[] = "target";

// Names of the tensors behind the first one, which has none: it is what goes
// from layer to layer, a batch's `inputs` or `targets`, a loss's `outputs`.
// "output[1]", "output['mask']".
inline std::vector<std::string> FurtherNames(const TreeForm& form,
                                             const std::string& tree) {
  std::vector<std::string> names;
  for (size_t i = 1; i < form.paths().size(); ++i) {
    names.push_back(tree + form.paths()[i]);
  }
  return names;
}

// To: the value as a tree. From: the reverse; throws c10::TypeError, with
// `path` and what was expected there, for a tree that is no such value.
template <typename T>
struct TreeValue;

template <typename T>
c10::IValue ToTree(const T& value) {
  return TreeValue<T>::To(value);
}

template <typename T>
T FromTree(const c10::IValue& tree, const std::string& path) {
  return TreeValue<T>::From(tree, path);
}

namespace tree_values_internal {

inline void Check(bool fits, const c10::IValue& tree, const std::string& path,
                  const std::string& expected) {
  TORCH_CHECK_TYPE(fits, path, " is of type ", tree.tagKind(), ", where ",
                   expected, " is expected");
}

}  // namespace tree_values_internal

template <>
struct TreeValue<c10::IValue> {
  static c10::IValue To(const c10::IValue& value) { return value; }
  static c10::IValue From(const c10::IValue& tree,
                          const std::string& /*path*/) {
    return tree;
  }
};

template <>
struct TreeValue<at::Tensor> {
  static c10::IValue To(const at::Tensor& value) { return value; }
  static at::Tensor From(const c10::IValue& tree, const std::string& path) {
    tree_values_internal::Check(tree.isTensor(), tree, path, "a tensor");
    return tree.toTensor();
  }
};

template <>
struct TreeValue<std::optional<at::Tensor>> {
  static c10::IValue To(const std::optional<at::Tensor>& value) {
    return value.value_or(at::Tensor());
  }
  static std::optional<at::Tensor> From(const c10::IValue& tree,
                                        const std::string& path) {
    const auto tensor = FromTree<at::Tensor>(tree, path);
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  }
};

template <typename... T>
struct TreeValue<std::tuple<T...>> {
  static c10::IValue To(const std::tuple<T...>& value) {
    return std::apply(
        [](const T&... each) {
          return c10::ivalue::Tuple::create(
              std::vector<c10::IValue>{ToTree(each)...});
        },
        value);
  }
  static std::tuple<T...> From(const c10::IValue& tree,
                               const std::string& path) {
    const bool fits =
        tree.isTuple() &&
        tree.toTupleRef().elements().asArrayRef().size() == sizeof...(T);
    tree_values_internal::Check(fits, tree, path,
                                "a tuple of " + std::to_string(sizeof...(T)));
    return Elements(tree, path, std::index_sequence_for<T...>());
  }

 private:
  template <size_t... i>
  static std::tuple<T...> Elements(const c10::IValue& tree,
                                   const std::string& path,
                                   std::index_sequence<i...> /*which*/) {
    const auto elements = tree.toTupleRef().elements().asArrayRef();
    return {FromTree<T>(elements[i], path + "[" + std::to_string(i) + "]")...};
  }
};

template <typename A, typename B>
struct TreeValue<std::pair<A, B>> {
  static c10::IValue To(const std::pair<A, B>& value) {
    return ToTree(std::tuple<A, B>(value.first, value.second));
  }
  static std::pair<A, B> From(const c10::IValue& tree,
                              const std::string& path) {
    auto both = FromTree<std::tuple<A, B>>(tree, path);
    return {std::move(std::get<0>(both)), std::move(std::get<1>(both))};
  }
};

template <typename T>
struct TreeValue<std::vector<T>> {
  static c10::IValue To(const std::vector<T>& value) {
    c10::impl::GenericList list(c10::AnyType::get());
    for (const T& each : value) list.push_back(ToTree(each));
    return list;
  }
  static std::vector<T> From(const c10::IValue& tree, const std::string& path) {
    tree_values_internal::Check(tree.isList(), tree, path, "a list");
    std::vector<T> value;
    for (const c10::IValue& each : tree.toListRef()) {
      value.push_back(
          FromTree<T>(each, path + "[" + std::to_string(value.size()) + "]"));
    }
    return value;
  }
};

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
    for (const auto& each : value) dict.insert(each.first, ToTree(each.second));
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

#endif  // TANDEM_MODELS_MODULES_TREE_VALUES_H_
