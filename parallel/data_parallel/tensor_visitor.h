// Tensor visitor: goes through the tensors within a value, found by its type.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_TENSOR_VISITOR_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_TENSOR_VISITOR_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/base/named_tensors.h"

namespace tandem {

// Given a tensor and where it is: "input[0]", "input[1]['mask']".
using VisitTensor =
    absl::FunctionRef<void(at::Tensor& tensor, const std::string& path)>;

// What a type holds. This one is for what holds no tensors; others are in
// tensor_fields.h.
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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_TENSOR_VISITOR_H_
