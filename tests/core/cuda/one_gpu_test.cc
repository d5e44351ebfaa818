// Tests of one GPU: factors of sums, pinned copies, streams. What simulated
// devices cannot show, for they are the host.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "core/backend/nccl_backend.h"
#include "core/checkpoint/folder/host_copy.h"
#include "core/device/own_stream.h"

namespace tandem {
namespace {

class OneGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "there is no GPU";
  }

  const c10::Device gpu_{c10::kCUDA, 0};
};

// NCCL reads the factor in the dtype of the tensor.
TEST_F(OneGpuTest, NcclMultipliesInEachDtype) {
  const auto backend = MakeNcclBackend(c10::make_intrusive<c10d::HashStore>(),
                                       0, 1, gpu_, NcclOptions());
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    std::vector<at::Tensor> tensors = {
        at::full({5}, 3, at::dtype(dtype).device(gpu_))};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::makePreMulSum(0.5);
    (*backend)->allreduce(tensors, options)->wait();
    EXPECT_TRUE(at::equal(tensors[0].cpu(), at::full({5}, 1.5, dtype)))
        << dtype;
  }
}

TEST_F(OneGpuTest, ACopyOfItsPartIsInPinnedMemory) {
  StatePart part;
  part.tensors.emplace_back("a", at::arange(7).to(gpu_));
  part.tensors.emplace_back("b", at::full({2, 3}, 0.5).to(gpu_));
  HostCopy copy;
  const auto taken = copy.Take(part);
  ASSERT_TRUE(taken.ok()) << taken.status();
  ASSERT_EQ(taken->tensors.size(), part.tensors.size());
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    const at::Tensor& copied = taken->tensors[i].second;
    EXPECT_TRUE(copied.is_pinned()) << i;
    EXPECT_TRUE(at::equal(copied, part.tensors[i].second.cpu())) << i;
  }
}

TEST_F(OneGpuTest, StreamsHaveOneOwnerAndAreTakenAnewWhenTheyAreIdle) {
  const OwnStream first = TakeStream(gpu_);
  OwnStream second = TakeStream(gpu_);
  EXPECT_NE(first->id(), second->id());
  const c10::StreamId id = second->id();
  second->synchronize();
  second = nullptr;
  EXPECT_EQ(TakeStream(gpu_)->id(), id);
}

}  // namespace
}  // namespace tandem
