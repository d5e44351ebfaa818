// Scatter and gather: a batch cut along one dimension, a part for each device,
// and what the devices made of their parts, as one.
// (torch.nn.parallel.scatter_gather.)

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_SCATTER_GATHER_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_SCATTER_GATHER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"

namespace tandem {

// Tensor fields are the tensors within a value of any kind, found by its type:
// a tensor, or any nesting of optionals, pairs, tuples, vectors, arrays and
// maps of tensors. What forward takes and gives is scattered and gathered by
// them.
//
// A struct of one's own (named inputs, outputs by name) says which of its
// members hold tensors, in the namespace tandem:
//
//   template <>
//   struct TensorFields<Sample>
//       : TensorMembers<Sample, &Sample::tokens, &Sample::mask> {};
//
// What is none of these holds no tensors: it goes to every replica as it is.

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
NamedTensors FindTensors(const T& value, const std::string& path) {
  NamedTensors tensors;
  VisitTensors(const_cast<T&>(value), path,  // which is only read
               [&](at::Tensor& tensor, const std::string& where) {
                 tensors.emplace_back(where, tensor);
               });
  return tensors;
}

// Gives `value` others in their place, in the order of FindTensors.
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

struct ScatteredTensors {
  std::vector<std::vector<at::Tensor>> parts;  // [part][tensor], on its device
  // Which rows of the first tensor that was cut a part has; none was: zeros.
  std::vector<int64_t> first_rows;
  std::vector<int64_t> rows;
};

// Cuts each tensor as torch.chunk does: parts of ceil(size / devices) along
// `dim`, the last one smaller, and so fewer parts than devices where the batch
// is small: 5 samples for 4 devices make parts of 2, 2 and 1. An empty batch
// makes one part (PyTorch: an empty one for each device). Scalars and undefined
// tensors go to every part. Without any tensor that is cut there are as many
// parts as devices.
//
// Differentiable. Throws nothing; errors are InvalidArgument, naming the
// tensor, for one that has no dimension `dim`, and for tensors that make
// different numbers of parts (PyTorch takes the smallest and drops the rest
// unsaid), and LibTorch's.
absl::StatusOr<ScatteredTensors> ScatterTensors(
    const NamedTensors& tensors, const std::vector<c10::Device>& devices,
    int64_t dim);

// The same of the tensors within a value: a value for each part. What is no
// tensor is copied.
template <typename T>
absl::StatusOr<std::vector<T>> Scatter(const T& value,
                                       const std::vector<c10::Device>& devices,
                                       int64_t dim = 0) {
  TANDEM_ASSIGN_OR_RETURN(
      const ScatteredTensors scattered,
      ScatterTensors(FindTensors(value, "input"), devices, dim));
  std::vector<T> values(scattered.parts.size(), value);
  for (size_t i = 0; i < values.size(); ++i) {
    ReplaceTensors(values[i], scattered.parts[i]);
  }
  return values;
}

// Tensor i of all parts, on `device`, one behind the other along `dim`. Scalars
// become a vector, one number a part, as PyTorch does it. A tensor that is
// undefined in all parts is undefined.
//
// Differentiable. InvalidArgument, naming the tensor and the part, where parts
// have tensors at different places, and where one is defined in some parts
// alone; and LibTorch's errors (other sizes). Requires a part.
absl::StatusOr<std::vector<at::Tensor>> GatherTensors(
    const std::vector<NamedTensors>& parts, c10::Device device, int64_t dim);

// The same of the tensors within values. What is no tensor is the first
// value's.
template <typename T>
absl::StatusOr<T> Gather(std::vector<T> values, c10::Device device,
                         int64_t dim = 0) {
  std::vector<NamedTensors> parts;
  for (const T& each : values) parts.push_back(FindTensors(each, "output"));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> whole,
                          GatherTensors(parts, device, dim));
  T result = std::move(values.front());
  ReplaceTensors(result, whole);
  return result;
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_SCATTER_GATHER_H_
