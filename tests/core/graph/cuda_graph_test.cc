// CUDA's graphs do as simulated ones (make_device_graph_test). Needs a GPU:
// without one it says so.

#include "core/graph/cuda_graph.h"

#include <c10/cuda/CUDAFunctions.h>
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

}  // namespace
}  // namespace tandem
