// Small functions on tensors: what messages call them, their values on the
// host, the leaf behind a view, products in their dtype.

#ifndef TANDEM_CORE_BASE_TENSORS_H_
#define TANDEM_CORE_BASE_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include <string>

namespace tandem {

// Description of a tensor in a few words, for messages.

// "Float [64, 3, 7, 7]": dtype and shape, as PyTorch writes them; "nothing" for
// an undefined tensor.
std::string DescribeTensor(const at::Tensor& tensor);

// A tensor's values as bytes of the host's.

// `tensor` where its bytes are its values, row-major: on the CPU, contiguous,
// and neither a conjugate nor a negative that is yet to be formed (x.conj(),
// x.conj().imag). Itself where it is so, but for autograd.
inline at::Tensor HostValues(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

// In-place product of a tensor and a number.

// Multiplies a floating-point tensor. In bf16 and fp16 only the product is
// rounded, as by Python's `tensor *= factor`; C++'s Tensor::mul_ rounds the
// number first (LibTorch 2.15): a third becomes 0.334.
inline void MultiplyInPlace(const at::Tensor& tensor, double factor) {
  tensor.mul_(at::scalar_tensor(factor, at::kDouble));
}

// Viewed leaf: the parameter behind a view of all of it.

// The leaf of which `tensor` is a view that shows all of it as it lies there
// (view_as); `tensor` itself where it is another view, or none.
at::Tensor ViewedLeaf(const at::Tensor& tensor);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_TENSORS_H_
