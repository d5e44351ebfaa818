#include "core/model/layer_flow.h"

#include <utility>

namespace tandem {

int64_t LayerFlow::bytes() const {
  size_t sum = values.nbytes();
  for (const auto& each : skips) sum += each.second.nbytes();
  return static_cast<int64_t>(sum);
}

at::Tensor LeafOf(const at::Tensor& tensor) {
  return tensor.detach().requires_grad_(tensor.requires_grad());
}

LayerFlow LeavesOf(const LayerFlow& flow) {
  LayerFlow leaves = {LeafOf(flow.values)};
  for (const auto& [name, skip] : flow.skips) {
    leaves.skips[name] = LeafOf(skip);
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

}  // namespace tandem
