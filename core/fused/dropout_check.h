// Dropout check: what tandem::dropout_add takes, on whatever device.

#ifndef TANDEM_CORE_FUSED_DROPOUT_CHECK_H_
#define TANDEM_CORE_FUSED_DROPOUT_CHECK_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <optional>

namespace tandem {

inline bool HasResidual(const std::optional<at::Tensor>& residual) {
  return residual.has_value() && residual->defined();
}

// Throws c10::Error on what does not fit.
inline void CheckDropout(const at::Tensor& x,
                         const std::optional<at::Tensor>& residual, double p) {
  const bool adds = HasResidual(residual);
  TORCH_CHECK(x.dim() > 0 && p >= 0 && p <= 1 &&
                  (!adds || (residual->sizes() == x.sizes() &&
                             residual->scalar_type() == x.scalar_type() &&
                             residual->device() == x.device())),
              "dropout_add of ", x.scalar_type(), x.sizes(),
              " with probability ", p, adds ? " and another residual" : "",
              ": expected [samples, ...], and a residual like it");
}

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_DROPOUT_CHECK_H_
