// Tensors by name, and small functions on tensors: what messages call them,
// their values on the host, the leaf behind a view, products and rounding in
// their dtype.

#ifndef TANDEM_CORE_BASE_TENSORS_H_
#define TANDEM_CORE_BASE_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Tensors by full name ("layer1.0.conv1.weight"): parameters, buffers or
// optimizer state, in an order that the giver states.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// "Float [64, 3, 7, 7]": dtype and shape, as PyTorch writes them; "nothing" for
// an undefined tensor.
std::string DescribeTensor(const at::Tensor& tensor);

// `tensor` where its bytes are its values, row-major: on the CPU, contiguous,
// and neither a conjugate nor a negative that is yet to be formed (x.conj(),
// x.conj().imag). Itself where it is so, but for autograd.
inline at::Tensor HostValues(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

// Multiplies a floating-point tensor. In bf16 and fp16 only the product is
// rounded, as by Python's `tensor *= factor`; C++'s Tensor::mul_ rounds the
// number first (LibTorch 2.15): a third becomes 0.334.
void MultiplyInPlace(const at::Tensor& tensor, double factor);

// The leaf of which `tensor` is a view that shows all of it as it lies there
// (view_as); `tensor` itself where it is another view, or none.
at::Tensor ViewedLeaf(const at::Tensor& tensor);

// Makes each byte but 0 the one of `true`. In C++ a bool of another byte means
// nothing, and kernels differ in what they make of it; PyTorch takes it for
// true.
inline void MakeBools(void* values, uint64_t bytes) {
  auto* const each = static_cast<uint8_t*>(values);
  for (uint64_t i = 0; i < bytes; ++i) each[i] = each[i] != 0 ? 1 : 0;
}

// `number`, rounded to a floating-point dtype: infinity beyond its greatest.
// Other dtypes give the number itself.
inline double RoundedTo(c10::ScalarType dtype, double number) {
  const auto single = static_cast<float>(number);
  switch (dtype) {
    case c10::ScalarType::BFloat16:
      return static_cast<float>(c10::BFloat16(single));
    case c10::ScalarType::Half:
      return static_cast<float>(c10::Half(single));
    case c10::ScalarType::Float:
      return single;
    default:
      return number;
  }
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_TENSORS_H_
