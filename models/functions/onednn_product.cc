#include "models/functions/onednn_product.h"

#include <ATen/Context.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>

#include <exception>
#include <optional>
#include <string_view>

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

std::optional<LinearHandle> FindLinear() {
  if (!at::globalContext().hasMKLDNN()) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema(
      {"mkldnn::_linear_pointwise", ""});
  if (!found.has_value()) return std::nullopt;
  return found->typed<LinearPointwise>();
}

const std::optional<LinearHandle>& Linear() {
  static const auto* const linear =
      new std::optional<LinearHandle>(FindLinear());
  return *linear;
}

// What a processor cannot do LibTorch and oneDNN say, each by its own
// exception.
template <typename F>
bool Works(F product) {
  try {
    const at::Tensor one = at::ones({1, 1});
    product(one);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool WorksInBf16() {
  return Linear().has_value() && Works([](const at::Tensor& one) {
           const at::Tensor low = one.to(at::kBFloat16);
           OneDnnProduct(low, low, low.view({1}));
           at::native::mkldnn_matmul(low, low, at::empty_like(low),
                                     /*beta=*/0, /*alpha=*/1);
         });
}

// mkldnn_matmul refuses processors that cannot do bf16, whatever the dtype.
bool WorksInPlace() {
  return Works([](const at::Tensor& one) {
    at::native::mkldnn_matmul(one, one, at::empty_like(one), /*beta=*/0,
                              /*alpha=*/1);
  });
}

}  // namespace

bool HasOneDnnProduct(at::ScalarType dtype) {
  if (dtype == at::kFloat) return Linear().has_value();
  static const bool has_bf16 = WorksInBf16();
  return dtype == at::kBFloat16 && has_bf16;
}

at::Tensor OneDnnProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias) {
  return Linear()->call(a, b.t(),
                        bias.defined() ? std::optional(bias) : std::nullopt,
                        "none", Scalars(), "");
}

void PutOneDnnProduct(const at::Tensor& product, const at::Tensor& a,
                      const at::Tensor& b) {
  static const bool puts = WorksInPlace();
  if (puts) {
    at::native::mkldnn_matmul(a, b, product, /*beta=*/0, /*alpha=*/1);
  } else {
    product.copy_(OneDnnProduct(a, b, /*bias=*/{}));
  }
}

}  // namespace tandem
