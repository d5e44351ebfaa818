#include "core/fused/one_dnn_matmul.h"

#include <ATen/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>

#include <exception>

namespace at {
namespace native {
// Belongs to libtorch_cpu; its header (ATen/native/mkldnn/Matmul.h) is not
// installed.
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                   float beta, float alpha);
}  // namespace native
}  // namespace at

namespace tandem {
namespace {

// What a processor cannot do LibTorch and oneDNN say, each by its own
// exception.
bool Multiplies(c10::ScalarType dtype) {
  try {
    const at::Tensor one = at::ones({1, 1}, dtype);
    OneDnnMatmul(at::empty_like(one), one, one);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

bool HasOneDnnMatmul(c10::ScalarType dtype) {
  static const bool has_float = Multiplies(c10::kFloat);
  static const bool has_bf16 = Multiplies(c10::kBFloat16);
  static const bool has_fp16 = Multiplies(c10::kHalf);
  if (dtype == c10::kFloat) return has_float;
  if (dtype == c10::kBFloat16) return has_bf16;
  return dtype == c10::kHalf && has_fp16;
}

void OneDnnMatmul(const at::Tensor& product, const at::Tensor& a,
                  const at::Tensor& b) {
  at::native::mkldnn_matmul(a, b, product, /*beta=*/0, /*alpha=*/1);
}

}  // namespace tandem
