// Tensor fields: the tensors within a value of any kind, found by its type: a
// tensor, or any nesting of optionals, pairs, tuples, vectors, arrays and maps
// of tensors. What forward takes and gives is scattered and gathered by them.
//
// A struct of one's own (named inputs, outputs by name) says which of its
// members hold tensors, in the namespace tandem:
//
//   template <>
//   struct TensorFields<Sample>
//       : TensorMembers<Sample, &Sample::tokens, &Sample::mask> {};
//
// What is none of these holds no tensors: it goes to every replica as it is.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_TENSOR_FIELDS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_TENSOR_FIELDS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/named_tensors.h"

namespace tandem {

// Given a tensor and where it is: "input[0]", "input[1]['mask']".
using VisitTensor =
    absl::FunctionRef<void(at::Tensor& tensor, const std::string& path)>;

// What a type holds. This one is for what holds no tensors.
template <typename T>
struct TensorFields {
  static_assert(!std::is_convertible_v<T, at::TensorList> ||
                    !std::is_trivially_copyable_v<T>,
                "a list that does not own its tensors cannot be scattered: "
                "give a std::vector");
  static void Visit(T& /*value*/, const std::string& /*path*/,
                    VisitTensor /*visit*/) {}
};

// All tensors of `value`, in the order of its type.
template <typename T>
void VisitTensors(T& value, const std::string& path, VisitTensor visit) {
  TensorFields<T>::Visit(value, path, visit);
}

template <typename T>
NamedTensors TensorsOf(const T& value, const std::string& path) {
  NamedTensors tensors;
  VisitTensors(const_cast<T&>(value), path,  // which is only read
               [&](at::Tensor& tensor, const std::string& where) {
                 tensors.emplace_back(where, tensor);
               });
  return tensors;
}

// Gives `value` others in their place, in the order of TensorsOf.
template <typename T>
void ReplaceTensors(T& value, const std::vector<at::Tensor>& others) {
  size_t next = 0;
  VisitTensors(value, "", [&](at::Tensor& tensor, const std::string&) {
    tensor = others.at(next++);
  });
}

template <>
struct TensorFields<at::Tensor> {
  static void Visit(at::Tensor& tensor, const std::string& path,
                    VisitTensor visit) {
    visit(tensor, path);
  }
};

// The members of a struct that hold tensors, which are called ".0", ".1", ...
template <typename T, auto... members>
struct TensorMembers {
  static void Visit(T& value, const std::string& path, VisitTensor visit) {
    size_t i = 0;
    (VisitTensors(value.*members, absl::StrCat(path, ".", i++), visit), ...);
  }
};

template <typename T>
struct TensorFields<std::optional<T>> {
  static void Visit(std::optional<T>& value, const std::string& path,
                    VisitTensor visit) {
    if (value.has_value()) VisitTensors(*value, path, visit);
  }
};

namespace tensor_fields_internal {

template <typename Sequence>
struct OfSequence {
  static void Visit(Sequence& values, const std::string& path,
                    VisitTensor visit) {
    size_t i = 0;
    for (auto& each : values) {
      VisitTensors(each, absl::StrCat(path, "[", i++, "]"), visit);
    }
  }
};

template <typename Key>
std::string KeyText(const Key& key) {
  if constexpr (std::is_arithmetic_v<Key>) {
    return absl::StrCat("[", key, "]");
  } else if constexpr (std::is_convertible_v<Key, absl::string_view>) {
    return absl::StrCat("['", key, "']");
  } else {
    return "[key]";
  }
}

}  // namespace tensor_fields_internal

template <typename T>
struct TensorFields<std::vector<T>>
    : tensor_fields_internal::OfSequence<std::vector<T>> {};
template <>
struct TensorFields<std::vector<bool>> {  // whose elements have no address
  static void Visit(std::vector<bool>&, const std::string&, VisitTensor) {}
};
template <typename T, size_t n>
struct TensorFields<std::array<T, n>>
    : tensor_fields_internal::OfSequence<std::array<T, n>> {};

template <typename A, typename B>
struct TensorFields<std::pair<A, B>> {
  static void Visit(std::pair<A, B>& value, const std::string& path,
                    VisitTensor visit) {
    VisitTensors(value.first, absl::StrCat(path, ".first"), visit);
    VisitTensors(value.second, absl::StrCat(path, ".second"), visit);
  }
};

template <typename... T>
struct TensorFields<std::tuple<T...>> {
  static void Visit(std::tuple<T...>& value, const std::string& path,
                    VisitTensor visit) {
    std::apply(
        [&](T&... each) {
          size_t i = 0;
          (VisitTensors(each, absl::StrCat(path, "[", i++, "]"), visit), ...);
        },
        value);
  }
};

template <typename Key, typename T, typename... More>
struct TensorFields<std::map<Key, T, More...>> {
  static void Visit(std::map<Key, T, More...>& values, const std::string& path,
                    VisitTensor visit) {
    for (auto& [key, value] : values) {
      VisitTensors(value,
                   absl::StrCat(path, tensor_fields_internal::KeyText(key)),
                   visit);
    }
  }
};

// Two of the same contents may go through them in another order: by key here.
template <typename Key, typename T, typename... More>
struct TensorFields<std::unordered_map<Key, T, More...>> {
  static void Visit(std::unordered_map<Key, T, More...>& values,
                    const std::string& path, VisitTensor visit) {
    std::map<Key, T*> in_order;
    for (auto& [key, value] : values) in_order[key] = &value;
    for (const auto& [key, value] : in_order) {
      VisitTensors(*value,
                   absl::StrCat(path, tensor_fields_internal::KeyText(key)),
                   visit);
    }
  }
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_TENSOR_FIELDS_H_
