#include "models/layers/llama/rms_norm.h"

#include <ATen/ops/empty.h>

#include <memory>

#include "models/functions/rms_norm_function.h"
#include "models/layers/module_layer.h"

namespace tandem {

RmsNorm::RmsNorm(int64_t width, double eps)
    : weight_(register_parameter("weight", at::empty({width}))), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return RmsNormFunction(x, weight_, eps_);
}

LayerSpec RmsNormLayer(const std::string& name, int64_t width, double eps,
                       const InitialRule& rule) {
  return ModuleLayer<RmsNorm>(
      name, "RMSNorm", [=] { return std::make_shared<RmsNorm>(width, eps); },
      rule);
}

}  // namespace tandem
