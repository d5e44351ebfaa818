#include "parallel/layer_flow.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace tandem {

int64_t LayerFlow::bytes() const {
  size_t sum = values.nbytes();
  for (const auto& each : skips) sum += each.second.nbytes();
  return static_cast<int64_t>(sum);
}

at::Tensor LeafOf(const at::Tensor& tensor) {
  at::Tensor leaf = tensor.detach();
  const bool takes_gradient = at::isFloatingType(leaf.scalar_type()) ||
                              at::isComplexType(leaf.scalar_type());
  return takes_gradient ? leaf.requires_grad_() : leaf;
}

LayerFlow WithoutGraph(const LayerFlow& flow) {
  LayerFlow bare = {flow.values.detach()};
  for (const auto& [name, skip] : flow.skips) bare.skips[name] = skip.detach();
  return bare;
}

LayerFlow BroughtTo(const LayerFlow& flow, c10::Device device) {
  LayerFlow there = {flow.values.to(device)};
  for (const auto& [name, skip] : flow.skips) {
    there.skips[name] = skip.to(device);
  }
  return there;
}

LayerFlow LeavesOf(const LayerFlow& flow,
                   const std::vector<std::string>& further_inputs) {
  LayerFlow leaves = WithoutGraph(flow);
  leaves.values = LeafOf(flow.values);
  for (auto& [name, skip] : leaves.skips) {
    if (!absl::c_linear_search(further_inputs, name)) skip = LeafOf(skip);
  }
  return leaves;
}

void KeepSkips(const std::vector<std::string>& names, LayerFlow& flow) {
  Skips kept;
  for (const std::string& name : names) kept[name] = flow.skips.at(name);
  flow.skips = std::move(kept);
}

}  // namespace tandem
