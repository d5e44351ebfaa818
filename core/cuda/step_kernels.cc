#include "core/cuda/step_kernels.h"

#include <ATen/Tensor.h>
#include <c10/util/Exception.h>

#include <cstring>

namespace tandem {

GradientFactor ReadFactor(const at::Tensor& factor) {
  TORCH_CHECK(factor.nbytes() == sizeof(GradientFactor),
              "a factor of gradients has ", sizeof(GradientFactor),
              " bytes, not ", factor.nbytes());
  const at::Tensor host = factor.cpu();
  GradientFactor result;
  std::memcpy(&result, host.const_data_ptr(), sizeof(result));
  return result;
}

}  // namespace tandem
