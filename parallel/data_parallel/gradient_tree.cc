#include "parallel/data_parallel/gradient_tree.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace tandem {
namespace {

using Tensors = std::vector<at::Tensor>;

// Above this a copy's own time is more than what it costs to begin one.
constexpr int64_t kSmall = 1 << 14;  // elements

bool IsSmall(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.is_contiguous() && tensor.numel() <= kSmall;
}

// By dtype, which tensors go side by side.
std::vector<std::vector<size_t>> SideBySide(const Tensors& tensors) {
  std::map<at::ScalarType, std::vector<size_t>> by_dtype;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (IsSmall(tensors[i])) by_dtype[tensors[i].scalar_type()].push_back(i);
  }
  std::vector<std::vector<size_t>> groups;
  for (auto& each : by_dtype) {
    if (each.second.size() > 1) groups.push_back(std::move(each.second));
  }
  return groups;
}

// Copies that nobody else has.
Tensors CopiesOn(c10::Device device, const Tensors& tensors) {
  Tensors copies(tensors.size());
  for (const std::vector<size_t>& group : SideBySide(tensors)) {
    Tensors flat;
    for (const size_t i : group) flat.push_back(tensors[i].reshape({-1}));
    const at::Tensor all = at::cat(flat).to(device);
    int64_t begin = 0;
    for (const size_t i : group) {
      const int64_t length = tensors[i].numel();
      copies[i] = all.narrow(0, begin, length).view(tensors[i].sizes());
      begin += length;
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (copies[i].defined() || !tensors[i].defined()) continue;
    copies[i] = tensors[i].to(device);
  }
  return copies;
}

// Dense and sparse add up in this order alone.
at::Tensor Sum(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kSparse && b.layout() != at::kSparse ? b + a : a + b;
}

void AddTo(Tensors& sums, const Tensors& others, c10::Device from,
           c10::Device to) {
  const bool crosses = from != to;
  const bool own = crosses && !at::GradMode::is_enabled();
  const Tensors brought = own ? CopiesOn(to, others) : others;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!brought[i].defined()) continue;
    const at::Tensor other = crosses && !own ? brought[i].to(to) : brought[i];
    if (!sums[i].defined()) {
      sums[i] = other;
    } else if (own && other.layout() == at::kStrided &&
               sums[i].layout() == at::kStrided) {
      sums[i] = other.add_(sums[i]);  // a + b and b + a have the same bits
    } else {
      sums[i] = Sum(sums[i], other);
    }
  }
}

}  // namespace

std::vector<at::Tensor> SumOverDevices(
    std::vector<std::vector<at::Tensor>> tensors,
    const std::vector<c10::Device>& devices) {
  const size_t count = tensors.size();
  CHECK(count > 0 && count <= devices.size());
  for (size_t step = 1; step < count; step *= 2) {
    for (size_t i = 0; i + step < count; i += 2 * step) {
      AddTo(tensors[i], tensors[i + step], devices[i + step], devices[i]);
      tensors[i + step].clear();
    }
  }
  return std::move(tensors[0]);
}

}  // namespace tandem
