#include "models/layers/matrix_product.h"

#include <ATen/Context.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <optional>
#include <string_view>

#include "core/device/host_memory.h"

namespace tandem {
namespace {

using Scalars = c10::List<std::optional<at::Scalar>>;
// x [m, k], weight [n, k] -> x weight^T + bias. What TorchInductor calls.
using LinearPointwise = at::Tensor(const at::Tensor& x,
                                   const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias,
                                   std::string_view after, Scalars scalars,
                                   std::optional<std::string_view> algorithm);

std::optional<c10::TypedOperatorHandle<LinearPointwise>> FindOneDnnLinear() {
  if (!at::globalContext().hasMKLDNN()) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema(
      {"mkldnn::_linear_pointwise", ""});
  if (!found.has_value()) return std::nullopt;
  return found->typed<LinearPointwise>();
}

bool IsPlain(const at::Tensor& matrix) {
  return RunsCpuKernels(matrix.device().type()) &&
         matrix.scalar_type() == at::kFloat &&
         matrix.layout() == at::kStrided && matrix.dim() == 2 &&
         !(at::GradMode::is_enabled() && matrix.requires_grad());
}

bool IsForOneDnn(const at::Tensor& a, const at::Tensor& b,
                 const at::Tensor& bias) {
  return IsPlain(a) && IsPlain(b) && a.size(1) == b.size(0) &&
         a.size(0) * a.size(1) * b.size(1) >= kLeastOneDnnProduct &&
         (!bias.defined() ||
          (bias.dim() == 1 && bias.size(0) == b.size(1) &&
           bias.scalar_type() == at::kFloat &&
           !(at::GradMode::is_enabled() && bias.requires_grad())));
}

}  // namespace

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias) {
  static const auto one_dnn = FindOneDnnLinear();
  if (one_dnn.has_value() && IsForOneDnn(a, b, bias)) {
    return one_dnn->call(a, b.t(),
                         bias.defined() ? std::optional(bias) : std::nullopt,
                         "none", Scalars(), "");
  }
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

}  // namespace tandem
