#include "core/precision/cast_buffers.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "absl/strings/match.h"

namespace tandem {

void CastBuffers(const NamedTensors& buffers, c10::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, buffer] : buffers) {
    if (!at::isFloatingType(buffer.scalar_type()) ||
        absl::EndsWith(name, "running_mean") ||
        absl::EndsWith(name, "running_var")) {
      continue;
    }
    buffer.set_data(buffer.to(dtype));
  }
}

}  // namespace tandem
