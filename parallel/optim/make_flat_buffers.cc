// How parameters are put together in flat buffers.

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "parallel/optim/flat_buffer.h"

namespace tandem {

FlatBuffers MakeFlatBuffers(const NamedTensors& parameters,
                            const FlatBufferOptions& options) {
  CHECK(options.traits.empty() || options.traits.size() == parameters.size());
  struct Part {
    c10::Device device;
    at::ScalarType dtype;
    ParameterTraits traits;
    NamedTensors parameters;
    std::vector<int64_t> positions;
  };
  std::vector<Part> parts;
  std::set<c10::TensorImpl*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].second;
    const std::optional<ParameterTraits> traits =
        options.traits.empty() ? ParameterTraits() : options.traits[i];
    if (!tensor.requires_grad() || !traits.has_value()) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& each) {
      return each.device == tensor.device() &&
             each.dtype == tensor.scalar_type() && each.traits == *traits;
    });
    if (part == parts.end()) {
      part = parts.insert(
          part, {tensor.device(), tensor.scalar_type(), *traits, {}, {}});
    }
    part->parameters.push_back(parameters[i]);
    part->positions.push_back(static_cast<int64_t>(i));
  }
  FlatBuffers buffers;
  for (Part& part : parts) {
    std::reverse(part.parameters.begin(), part.parameters.end());
    std::reverse(part.positions.begin(), part.positions.end());
    buffers.push_back(std::make_unique<FlatBuffer>(
        part.parameters, part.positions, options.allocate, part.traits,
        options.allocate_values));
  }
  return buffers;
}

}  // namespace tandem
