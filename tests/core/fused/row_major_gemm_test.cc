#include "core/fused/row_major_gemm.h"

#include <gtest/gtest.h>

#include "core/device/processor.h"

namespace tandem::row_major_gemm_test {
namespace {

// LibTorch exports the functions of MKL that these are, though in no header.
TEST(RowMajorGemmTest, LibTorchHasItsFunctions) {
  EXPECT_TRUE(HasGemm(c10::kFloat));
  if (!__builtin_cpu_is("intel") || !ProcessorHas("avx512_bf16")) {
    GTEST_SKIP() << "bf16 is for Intel's processors with AVX512_BF16";
  }
  EXPECT_TRUE(HasGemm(c10::kBFloat16));
}

}  // namespace
}  // namespace tandem::row_major_gemm_test
