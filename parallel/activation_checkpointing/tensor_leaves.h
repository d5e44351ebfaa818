// Tensor leaves: the tensors within a function's arguments or results, whatever
// holds them (torch.utils._pytree for C++ types).

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_TENSOR_LEAVES_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_TENSOR_LEAVES_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem {

// Calls `visit` with each tensor, in a fixed order, undefined ones included.
// Looks into pairs, tuples, arrays, vectors, maps and optionals, of any depth;
// what else there is has none.
template <typename Visit>
struct TensorLeaves {
  const Visit& visit;

  void In(at::Tensor& tensor) const { visit(tensor); }
  template <typename T>
  void In(std::optional<T>& value) const {
    if (value.has_value()) In(*value);
  }
  template <typename T>
  void In(std::vector<T>& values) const {
    for (T& each : values) In(each);
  }
  void In(std::vector<bool>&) const {}
  template <typename T, size_t n>
  void In(std::array<T, n>& values) const {
    for (T& each : values) In(each);
  }
  template <typename Key, typename T, typename... Rest>
  void In(std::map<Key, T, Rest...>& values) const {
    for (auto& each : values) In(each.second);
  }
  template <typename A, typename B>
  void In(std::pair<A, B>& values) const {
    In(values.first);
    In(values.second);
  }
  template <typename... T>
  void In(std::tuple<T...>& values) const {
    std::apply([&](auto&... each) { (In(each), ...); }, values);
  }
  template <typename T>
  void In(T&) const {}
};

template <typename T, typename Visit>
void ForEachTensor(T& values, const Visit& visit) {
  TensorLeaves<Visit>{visit}.In(values);
}

// The defined tensors of a value, apart from it, and which they were.
struct TakenTensors {
  std::vector<at::Tensor> tensors;
  std::vector<bool> is_taken;  // by leaf
};

// Leaves undefined ones in their places.
template <typename T>
TakenTensors TakeTensors(T& values) {
  TakenTensors taken;
  ForEachTensor(values, [&](at::Tensor& tensor) {
    taken.is_taken.push_back(tensor.defined());
    if (tensor.defined()) taken.tensors.push_back(std::move(tensor));
  });
  return taken;
}

// Puts `tensors`, one for each that was taken, where they were.
template <typename T>
void PutTensors(const std::vector<bool>& is_taken,
                const std::vector<at::Tensor>& tensors, T& values) {
  size_t leaf = 0, next = 0;
  ForEachTensor(values, [&](at::Tensor& tensor) {
    if (is_taken[leaf++]) tensor = tensors[next++];
  });
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_TENSOR_LEAVES_H_
