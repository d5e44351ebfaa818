#include "core/model/layer_flow.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"

namespace tandem {

int64_t LayerFlow::bytes() const {
  size_t sum = values.nbytes();
  for (const auto& each : skips) sum += each.second.nbytes();
  return static_cast<int64_t>(sum);
}

at::Tensor DetachedLeaf(const at::Tensor& tensor) {
  return tensor.detach().requires_grad_(tensor.requires_grad());
}

LayerFlow DetachedLeaves(const LayerFlow& flow) {
  LayerFlow leaves = {DetachedLeaf(flow.values)};
  for (const auto& [name, skip] : flow.skips) {
    leaves.skips[name] = DetachedLeaf(skip);
  }
  return leaves;
}

LayerFlow BroughtTo(const LayerFlow& flow, c10::Device device) {
  LayerFlow there = {flow.values.to(device)};
  for (const auto& [name, skip] : flow.skips) {
    there.skips[name] = skip.to(device);
  }
  return there;
}

void KeepSkips(const std::vector<std::string>& names, LayerFlow& flow) {
  Skips kept;
  for (const std::string& name : names) kept[name] = flow.skips.at(name);
  flow.skips = std::move(kept);
}

namespace {

using torch::autograd::variable_list;

// To a cache line, which is the greatest vector.
bool IsAligned(const at::Tensor& tensor) {
  constexpr uintptr_t kLine = 64;
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kLine == 0;
}

class BorderBackward : public torch::autograd::Node {
 public:
  explicit BorderBackward(std::vector<int64_t> strides)
      : strides_(std::move(strides)) {}

  std::string name() const override { return "BorderBackward"; }

  variable_list apply(variable_list&& gradients) override {
    return {Arranged(gradients.front())};
  }

 private:
  at::Tensor Arranged(const at::Tensor& gradient) const {
    if (!gradient.defined()) return gradient;
    if (gradient.strides() == strides_ && IsAligned(gradient)) return gradient;
    return at::empty_strided(gradient.sizes(), strides_, gradient.options())
        .copy_(gradient);
  }

  const std::vector<int64_t> strides_;
};

}  // namespace

at::Tensor Dense(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

at::Tensor Settled(const at::Tensor& tensor) {
  const at::Tensor dense = Dense(tensor);
  return IsAligned(dense) ? dense : dense.clone();
}

at::Tensor AcrossBorder(const at::Tensor& tensor) {
  const at::Tensor settled = Settled(tensor);
  if (!torch::autograd::compute_requires_grad(settled)) return settled;
  const auto node =
      c10::make_intrusive<BorderBackward>(settled.strides().vec());
  node->set_next_edges(torch::autograd::collect_next_edges(settled));
  at::Tensor behind = settled.detach();
  torch::autograd::set_history(behind, node);
  return behind;
}

// In the reverse of the order in which a cut's gradients go back: autograd runs
// what was made last first, and adds up in that order where one tensor is
// several of these.
void CrossBorder(const Layer& layer, LayerFlow& flow) {
  for (auto skip = flow.skips.rbegin(); skip != flow.skips.rend(); ++skip) {
    if (!absl::c_linear_search(layer.links.stash, skip->first)) continue;
    skip->second = AcrossBorder(skip->second);
  }
  flow.values = AcrossBorder(flow.values);
}

}  // namespace tandem
