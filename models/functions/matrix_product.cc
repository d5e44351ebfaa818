#include "models/functions/matrix_product.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "core/device/host_memory.h"
#include "models/functions/onednn_product.h"
#include "models/functions/product_library.h"
#include "models/functions/wide_product.h"

namespace tandem {
namespace {

bool Records(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

bool IsPlain(const at::Tensor& matrix) {
  return RunsCpuKernels(matrix.device().type()) &&
         matrix.layout() == at::kStrided && matrix.dim() == 2 &&
         !Records(matrix);
}

bool MayBeForOneDnn(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType dtype = a.scalar_type();
  if (!IsPlain(a) || !IsPlain(b) || b.scalar_type() != dtype ||
      a.size(1) != b.size(0) || !HasOneDnnProduct(dtype)) {
    return false;
  }
  const int64_t multiplications = a.size(0) * a.size(1) * b.size(1);
  return multiplications >= (dtype == at::kFloat ? LeastProductForOneDnn() : 1);
}

bool MayBeForOneDnn(const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& bias) {
  return MayBeForOneDnn(a, b) && bias.dim() == 1 && bias.size(0) == b.size(1) &&
         bias.scalar_type() == a.scalar_type() && !Records(bias);
}

bool AreForWideProduct(const at::Tensor& product, const at::Tensor& a,
                       const at::Tensor& b) {
  return product.scalar_type() == at::kFloat &&
         a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16 &&
         product.is_contiguous() && a.size(1) == b.size(0) && HasWideProduct();
}

bool AreForOneDnn(at::Tensor& product, const at::Tensor& a,
                  const at::Tensor& b) {
  if (!MayBeForOneDnn(a, b)) return false;
  if (a.scalar_type() != at::kFloat) return true;
  return FasterIsOneDnn(
      a, b, /*bias=*/{}, [&] { at::mm_out(product, a, b); },
      [&] { PutOneDnnProduct(product, a, b); });
}

at::Tensor& PutOnCpu(at::Tensor& product, const at::Tensor& a,
                     const at::Tensor& b) {
  if (AreForWideProduct(product, a, b)) {
    PutWideProduct(product, a, b);
  } else if (product.scalar_type() != a.scalar_type()) {
    product.copy_(MatrixProduct(a, b));
  } else if (AreForOneDnn(product, a, b)) {
    PutOneDnnProduct(product, a, b);
  } else {
    at::mm_out(product, a, b);
  }
  return product;
}

at::Tensor ProductWithBiasOnCpu(const at::Tensor& a, const at::Tensor& b,
                                const at::Tensor& bias) {
  const auto by_mkl = [&] { return at::addmm(bias, a, b); };
  const auto by_one_dnn = [&] { return OneDnnProduct(a, b, bias); };
  const bool is_one_dnn =
      a.scalar_type() != at::kFloat ||
      FasterIsOneDnn(
          a, b, bias, [&] { by_mkl(); }, [&] { by_one_dnn(); });
  return is_one_dnn ? by_one_dnn() : by_mkl();
}

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def(
      "put_matrix_product(Tensor(a!) product, Tensor a, Tensor b) -> "
      "Tensor(a!)");
  library.def(
      "matrix_product_with_bias(Tensor a, Tensor b, Tensor bias) -> Tensor");
}

TORCH_LIBRARY_IMPL(tandem, CPU, library) {
  library.impl("put_matrix_product", PutOnCpu);
  library.impl("matrix_product_with_bias", ProductWithBiasOnCpu);
}

at::Tensor ProductWithBias(const at::Tensor& a, const at::Tensor& b,
                           const at::Tensor& bias) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("tandem::matrix_product_with_bias", "")
          .typed<decltype(ProductWithBiasOnCpu)>();
  return op.call(a, b, bias);
}

at::Tensor PutInNew(at::ScalarType dtype, const at::Tensor& a,
                    const at::Tensor& b) {
  const at::Tensor product =
      at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype));
  PutMatrixProduct(product, a, b);
  return product;
}

}  // namespace

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias) {
  if (bias.defined()) {
    return MayBeForOneDnn(a, b, bias) ? ProductWithBias(a, b, bias)
                                      : at::addmm(bias, a, b);
  }
  return MayBeForOneDnn(a, b) ? PutInNew(a.scalar_type(), a, b) : at::mm(a, b);
}

at::Tensor MatrixProductIn(at::ScalarType dtype, const at::Tensor& a,
                           const at::Tensor& b) {
  if (dtype == a.scalar_type()) return MatrixProduct(a, b);
  if (!IsPlain(a) || !IsPlain(b)) return MatrixProduct(a, b).to(dtype);
  return PutInNew(dtype, a, b);
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
