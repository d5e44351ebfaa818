// tandem::dropout_add on a GPU, against the CPU's. Needs a GPU: without one it
// says so.

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "core/fused/dropout_add.h"

namespace tandem {
namespace {

class DropoutKernelTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
      GTEST_SKIP() << "there is no GPU";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, DropoutKernelTest,
                         testing::Values(at::kFloat, at::kBFloat16));

TEST_P(DropoutKernelTest, HasTheCpusBits) {
  const at::IntArrayRef shapes[] = {{1}, {3, 0}, {7, 1}, {5, 71}, {4, 33, 129}};
  for (const at::IntArrayRef& shape : shapes) {
    const at::Tensor x = at::randn(shape).to(GetParam());
    const at::Tensor residual = at::randn(shape).to(GetParam());
    for (const double p : {0.0, 0.3, 1.0}) {
      const DropoutDraws draws = {0x0123456789abcdef, 1000, p};
      ASSERT_TRUE(HasDropoutAdd(x.cuda()));
      EXPECT_TRUE(at::equal(DropoutAdd(x.cuda(), {}, draws).cpu(),
                            DropoutAdd(x, {}, draws)));
      EXPECT_TRUE(at::equal(DropoutAdd(x.cuda(), residual.cuda(), draws).cpu(),
                            DropoutAdd(x, residual, draws)));
    }
  }
}

TEST_P(DropoutKernelTest, PartsOfSamplesHaveTheCpusBits) {
  const at::Tensor x = at::randn({4, 33, 129}).to(GetParam());
  const at::Tensor residual = at::randn({4, 33, 129}).to(GetParam());
  for (const SamplePart& part :
       {SamplePart{1234567}, SamplePart{3, 129, 517}, SamplePart{0, 43, 64}}) {
    const DropoutDraws draws = {0x0123456789abcdef, 1000, 0.3, part};
    EXPECT_TRUE(at::equal(DropoutAdd(x.cuda(), residual.cuda(), draws).cpu(),
                          DropoutAdd(x, residual, draws)));
  }
}

}  // namespace
}  // namespace tandem
