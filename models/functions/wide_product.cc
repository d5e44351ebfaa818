#include "models/functions/wide_product.h"

#include <algorithm>
#include <cstdint>

#include "core/fused/row_major_gemm.h"

namespace tandem {
namespace {

using Bf16 = c10::BFloat16;

bool HasRows(const at::Tensor& matrix) {
  return (matrix.stride(1) == 1 || matrix.size(1) == 1) &&
         matrix.stride(0) >= matrix.size(1);
}

// Of a single row the stride may be anything.
GemmOperand<Bf16> OperandOf(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<Bf16>(),
          std::max(matrix.stride(0), matrix.size(1))};
}

// Calls `use` with the matrix as a product takes it: one stride is 1, the other
// at least a row's length.
template <typename Use>
void WithOperand(const at::Tensor& matrix, const Use& use) {
  if (HasRows(matrix)) return use(OperandOf(matrix));
  const at::Tensor transposed = matrix.t();
  if (!HasRows(transposed)) return use(OperandOf(matrix.contiguous()));
  GemmOperand<Bf16> operand = OperandOf(transposed);
  operand.is_transposed = true;
  use(operand);
}

}  // namespace

bool HasWideProduct() { return HasGemm(at::kBFloat16); }

void PutWideProduct(const at::Tensor& product, const at::Tensor& a,
                    const at::Tensor& b) {
  if (product.numel() == 0) return;
  if (a.size(1) == 0) {
    product.zero_();
    return;
  }
  WithOperand(a, [&](const GemmOperand<Bf16>& left) {
    WithOperand(b, [&](const GemmOperand<Bf16>& right) {
      Gemm<Bf16>({a.size(0), a.size(1), b.size(1)}, /*alpha=*/1, left, right,
                 /*beta=*/0, product.data_ptr<float>(), b.size(1));
    });
  });
}

}  // namespace tandem
