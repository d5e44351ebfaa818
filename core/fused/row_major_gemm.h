// Matrix product (GEMM) of arrays in row-major order, by LibTorch's BLAS.

#ifndef TANDEM_CORE_FUSED_ROW_MAJOR_GEMM_H_
#define TANDEM_CORE_FUSED_ROW_MAJOR_GEMM_H_

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>

#include <cstdint>

namespace tandem {

// A matrix in an array: element (i, j) is at i * stride + j, or, transposed, at
// j * stride + i.
template <typename T>
struct GemmOperand {
  const T* data;
  int64_t stride;
  bool is_transposed = false;
};

struct GemmShape {
  int64_t m, k, n;
};

// Whether there is one for operands of this dtype that is worth while: of
// floats where LibTorch's BLAS is found; of bf16 on Intel's processors with
// instructions for it, where that BLAS is MKL.
bool HasGemm(c10::ScalarType dtype);

// While it lives, Gemm on the calling thread uses that thread alone, and gives
// the same bits however many LibTorch may use.
class OneThreadedGemm {
 public:
  OneThreadedGemm();
  ~OneThreadedGemm();
  OneThreadedGemm(const OneThreadedGemm&) = delete;
  OneThreadedGemm& operator=(const OneThreadedGemm&) = delete;

 private:
  const int outer_;
};

// c [m, n] = alpha a [m, k] b [k, n] + beta c, accumulated in float. With a
// beta of 0 what lay in c does not matter. Sizes are at least 1; sizes and
// strides fit an int. Requires HasGemm.
template <typename T>
void Gemm(const GemmShape& shape, float alpha, const GemmOperand<T>& a,
          const GemmOperand<T>& b, float beta, float* c, int64_t c_stride);

extern template void Gemm<float>(const GemmShape&, float,
                                 const GemmOperand<float>&,
                                 const GemmOperand<float>&, float, float*,
                                 int64_t);
extern template void Gemm<c10::BFloat16>(const GemmShape&, float,
                                         const GemmOperand<c10::BFloat16>&,
                                         const GemmOperand<c10::BFloat16>&,
                                         float, float*, int64_t);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_ROW_MAJOR_GEMM_H_
