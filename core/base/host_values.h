// A tensor's values as bytes of the host's.

#ifndef TANDEM_CORE_BASE_HOST_VALUES_H_
#define TANDEM_CORE_BASE_HOST_VALUES_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// `tensor` where its bytes are its values, row-major: on the CPU, contiguous,
// and neither a conjugate nor a negative that is yet to be formed (x.conj(),
// x.conj().imag). Itself where it is so, but for autograd.
inline at::Tensor HostValues(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_HOST_VALUES_H_
