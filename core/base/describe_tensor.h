// Description of a tensor in a few words, for messages.

#ifndef TANDEM_CORE_BASE_DESCRIBE_TENSOR_H_
#define TANDEM_CORE_BASE_DESCRIBE_TENSOR_H_

#include <ATen/core/Tensor.h>

#include <string>

namespace tandem {

// "Float [64, 3, 7, 7]": dtype and shape, as PyTorch writes them; "nothing" for
// an undefined tensor.
std::string DescribeTensor(const at::Tensor& tensor);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_DESCRIBE_TENSOR_H_
