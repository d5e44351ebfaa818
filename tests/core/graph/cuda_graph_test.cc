// CUDA's graphs do as simulated ones (make_device_graph_test). Needs a GPU:
// without one it says so.

#include "core/graph/cuda_graph.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "core/graph/make_device_graph.h"
#include "core/graph/side_stream.h"

namespace tandem {
namespace {

TEST(CudaGraphTest, ReplaysWhatWasCaptured) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "there is no GPU";
  const c10::Device device(c10::kCUDA, 0);
  const SideStream side(device);
  torch::Tensor x = torch::zeros({8}, torch::device(device));
  auto graph = MakeDeviceGraph(device);
  ASSERT_TRUE(graph.ok()) << graph.status();
  {
    const SideStream::Scope scope(side);
    ASSERT_TRUE((*graph)->Begin().ok());
    x.add_(1);
    ASSERT_TRUE((*graph)->End().ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*graph)->Replay().ok());
  }
  EXPECT_EQ(x[0].item<float>(), 3);
}

int64_t ActiveBytes() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0)
      .active_bytes[0]
      .current;
}

// One that the host has waited in, ended on its stream or abandoned on another.
void FailToCapture(const SideStream& side, torch::Tensor x, bool ends) {
  auto graph = MakeDeviceGraph(x.device());
  ASSERT_TRUE(graph.ok()) << graph.status();
  const SideStream::Scope scope(side);
  ASSERT_TRUE((*graph)->Begin().ok());
  x.add_(1);
  EXPECT_ANY_THROW(x[0].item<float>());
  if (ends) {
    EXPECT_FALSE((*graph)->End().ok());
  } else {
    const c10::cuda::CUDAStreamGuard other(c10::cuda::getDefaultCUDAStream(0));
    (*graph)->Abandon();
  }
}

// Or LibTorch's allocator would keep each block that two streams have used, and
// ask a graph that is gone about each that it gives out.
TEST(CudaGraphTest, AFailedCaptureLeavesNothing) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "there is no GPU";
  const c10::Device device(c10::kCUDA, 0);
  const SideStream side(device);
  torch::Tensor x = torch::zeros({8}, torch::device(device));
  for (const bool ends : {true, false}) {
    FailToCapture(side, x, ends);
    torch::rand({8}, torch::device(device));  // of the default generator
    torch::cuda::synchronize();
    const int64_t before = ActiveBytes();
    torch::empty({1 << 20}, torch::device(device)).record_stream(side.stream());
    torch::cuda::synchronize();
    torch::empty({1}, torch::device(device));  // takes blocks back
    EXPECT_EQ(ActiveBytes(), before) << ends;
  }
  auto graph = MakeDeviceGraph(device);
  ASSERT_TRUE(graph.ok()) << graph.status();
  {
    const SideStream::Scope scope(side);
    ASSERT_TRUE((*graph)->Begin().ok());
    x.add_(1);
    ASSERT_TRUE((*graph)->End().ok());
    ASSERT_TRUE((*graph)->Replay().ok());
  }
  EXPECT_EQ(x[0].item<float>(), 1);
}

}  // namespace
}  // namespace tandem
