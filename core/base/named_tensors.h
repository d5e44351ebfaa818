// Tensors by full name ("layer1.0.conv1.weight"): parameters, buffers or
// optimizer state, in an order that the giver states.

#ifndef TANDEM_CORE_BASE_NAMED_TENSORS_H_
#define TANDEM_CORE_BASE_NAMED_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_NAMED_TENSORS_H_
