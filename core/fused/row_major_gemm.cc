#include "core/fused/row_major_gemm.h"

#include "core/device/host_resources.h"

// Symbols of libtorch_cpu: BLAS's own, and MKL's for bf16. Neither is in every
// build.
extern "C" {
__attribute__((weak)) void sgemm_(const char* transpose_a,
                                  const char* transpose_b, const int* m,
                                  const int* n, const int* k,
                                  const float* alpha, const float* a,
                                  const int* stride_a, const float* b,
                                  const int* stride_b, const float* beta,
                                  float* c, const int* stride_c);
__attribute__((weak)) void gemm_bf16bf16f32_(
    const char* transpose_a, const char* transpose_b, const int* m,
    const int* n, const int* k, const float* alpha, const void* a,
    const int* stride_a, const void* b, const int* stride_b, const float* beta,
    float* c, const int* stride_c);
// Gives the calling thread's limit before; 0: the process's counts.
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
}

namespace tandem {
namespace {

int SetThreads(int threads) {
  return MKL_Set_Num_Threads_Local == nullptr
             ? 0
             : MKL_Set_Num_Threads_Local(threads);
}

bool IsIntel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool HasBf16Gemm() {
  return gemm_bf16bf16f32_ != nullptr && IsIntel() &&
         ProcessorHas("avx512_bf16");
}

void Call(const char* ta, const char* tb, const int* m, const int* n,
          const int* k, const float* alpha, const float* a, const int* lda,
          const float* b, const int* ldb, const float* beta, float* c,
          const int* ldc) {
  sgemm_(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void Call(const char* ta, const char* tb, const int* m, const int* n,
          const int* k, const float* alpha, const c10::BFloat16* a,
          const int* lda, const c10::BFloat16* b, const int* ldb,
          const float* beta, float* c, const int* ldc) {
  gemm_bf16bf16f32_(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace

bool HasGemm(c10::ScalarType dtype) {
  if (dtype == c10::kFloat) return sgemm_ != nullptr;
  static const bool has_bf16 = HasBf16Gemm();
  return dtype == c10::kBFloat16 && has_bf16;
}

OneThreadedGemm::OneThreadedGemm() : outer_(SetThreads(1)) {}

OneThreadedGemm::~OneThreadedGemm() { SetThreads(outer_); }

// BLAS takes columns: to it these matrices are transposed, and so is their
// product, which is that of the other order.
template <typename T>
void Gemm(const GemmShape& shape, float alpha, const GemmOperand<T>& a,
          const GemmOperand<T>& b, float beta, float* c, int64_t c_stride) {
  const int m = static_cast<int>(shape.m);
  const int n = static_cast<int>(shape.n);
  const int k = static_cast<int>(shape.k);
  const int stride_a = static_cast<int>(a.stride);
  const int stride_b = static_cast<int>(b.stride);
  const int stride_c = static_cast<int>(c_stride);
  Call(b.is_transposed ? "T" : "N", a.is_transposed ? "T" : "N", &n, &m, &k,
       &alpha, b.data, &stride_b, a.data, &stride_a, &beta, c, &stride_c);
}

template void Gemm<float>(const GemmShape&, float, const GemmOperand<float>&,
                          const GemmOperand<float>&, float, float*, int64_t);
template void Gemm<c10::BFloat16>(const GemmShape&, float,
                                  const GemmOperand<c10::BFloat16>&,
                                  const GemmOperand<c10::BFloat16>&, float,
                                  float*, int64_t);

}  // namespace tandem
