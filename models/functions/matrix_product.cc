#include "models/functions/matrix_product.h"

#include <ATen/Context.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <optional>
#include <string_view>

#include "core/device/host_memory.h"

namespace at {
namespace native {
// Of libtorch_cpu; its header (ATen/native/mkldnn/Matmul.h) is not installed.
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                   float beta, float alpha);
}  // namespace native
}  // namespace at

namespace tandem {
namespace {

using Scalars = c10::List<std::optional<at::Scalar>>;
// x [m, k], weight [n, k] -> x weight^T + bias. What TorchInductor calls.
using LinearPointwise = at::Tensor(const at::Tensor& x,
                                   const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias,
                                   std::string_view after, Scalars scalars,
                                   std::optional<std::string_view> algorithm);

using LinearHandle = c10::TypedOperatorHandle<LinearPointwise>;

std::optional<LinearHandle> FindOneDnnLinear() {
  if (!at::globalContext().hasMKLDNN()) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema(
      {"mkldnn::_linear_pointwise", ""});
  if (!found.has_value()) return std::nullopt;
  return found->typed<LinearPointwise>();
}

const std::optional<LinearHandle>& OneDnnLinear() {
  static const auto* const linear =
      new std::optional<LinearHandle>(FindOneDnnLinear());
  return *linear;
}

bool IsPlain(const at::Tensor& matrix) {
  return RunsCpuKernels(matrix.device().type()) &&
         matrix.scalar_type() == at::kFloat &&
         matrix.layout() == at::kStrided && matrix.dim() == 2 &&
         !(at::GradMode::is_enabled() && matrix.requires_grad());
}

bool IsForOneDnn(const at::Tensor& a, const at::Tensor& b,
                 const at::Tensor& bias) {
  return OneDnnLinear().has_value() && IsPlain(a) && IsPlain(b) &&
         a.size(1) == b.size(0) &&
         a.size(0) * a.size(1) * b.size(1) >= kLeastOneDnnProduct &&
         (!bias.defined() ||
          (bias.dim() == 1 && bias.size(0) == b.size(1) &&
           bias.scalar_type() == at::kFloat &&
           !(at::GradMode::is_enabled() && bias.requires_grad())));
}

at::Tensor ByOneDnn(const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& bias) {
  return OneDnnLinear()->call(
      a, b.t(), bias.defined() ? std::optional(bias) : std::nullopt, "none",
      Scalars(), "");
}

// mkldnn_matmul refuses processors that cannot do bf16, whatever the dtype.
bool FindOneDnnPut() {
  try {
    const at::Tensor one = at::ones({1, 1}, at::kFloat);
    at::native::mkldnn_matmul(one, one, at::empty_like(one), /*beta=*/0,
                              /*alpha=*/1);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

void PutByOneDnn(const at::Tensor& product, const at::Tensor& a,
                 const at::Tensor& b) {
  static const bool puts = FindOneDnnPut();
  if (puts) {
    at::native::mkldnn_matmul(a, b, product, /*beta=*/0, /*alpha=*/1);
  } else {
    product.copy_(ByOneDnn(a, b, /*bias=*/{}));
  }
}

at::Tensor& PutOnCpu(at::Tensor& product, const at::Tensor& a,
                     const at::Tensor& b) {
  if (!IsPlain(product) || !IsForOneDnn(a, b, /*bias=*/{})) {
    return at::mm_out(product, a, b);
  }
  PutByOneDnn(product, a, b);
  return product;
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "put_matrix_product(Tensor(a!) product, Tensor a, Tensor b) -> "
      "Tensor(a!)");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("put_matrix_product", PutOnCpu);
}

}  // namespace

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias) {
  if (bias.defined()) {
    return IsForOneDnn(a, b, bias) ? ByOneDnn(a, b, bias)
                                   : at::addmm(bias, a, b);
  }
  if (!IsForOneDnn(a, b, bias)) return at::mm(a, b);
  const at::Tensor product = at::empty({a.size(0), b.size(1)}, a.options());
  PutMatrixProduct(product, a, b);
  return product;
}

void PutMatrixProduct(const at::Tensor& product, const at::Tensor& a,
                      const at::Tensor& b) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("tandem::put_matrix_product", "")
          .typed<decltype(PutOnCpu)>();
  at::Tensor to = product;
  op.call(to, a, b);
}

}  // namespace tandem
