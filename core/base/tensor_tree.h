// Tensors within tuples, lists and dicts of any depth (torch.utils._pytree).

#ifndef TANDEM_CORE_BASE_TENSOR_TREE_H_
#define TANDEM_CORE_BASE_TENSOR_TREE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace tandem {

// Given a tensor and where it is: "mask", "boxes[0]", "views['left'][1]".
using TensorMap = absl::FunctionRef<absl::StatusOr<at::Tensor>(
    const at::Tensor& tensor, const std::string& path)>;

// The same tuples, lists and dicts, each tensor replaced by what `map` gives
// for it; the first of its errors. `path` is that of the tree. InvalidArgument,
// with the path, for what is neither a tensor nor one of these.
absl::StatusOr<c10::IValue> MapTensors(const c10::IValue& tree,
                                       const std::string& path, TensorMap map);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_TENSOR_TREE_H_
