// PyTorch's test_c10d_common.py: SyncBatchNorm with empty inputs, on some ranks
// and on all, wrapped by DistributedDataParallel.

#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <string>

#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/sync_batch_norm/convert.h"

namespace tandem::empty_batches_test {
namespace {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Sequential;

class EmptyBatchesTest : public DeviceTypesAnd<int> {};

Sequential Net() {
  return Sequential(
      Conv2d(Conv2dOptions(2, 3, 3).padding(1)), torch::nn::BatchNorm2d(3),
      Conv2d(Conv2dOptions(3, 2, 3).padding(1)), torch::nn::BatchNorm2d(2));
}

// Rank 0's batch has no samples; in the last step nobody's has.
TEST_P(EmptyBatchesTest, NothingIsEverNaN) {
  ExpectOk(RunDeviceRanks(value(), [](Communicator& world) -> absl::Status {
    Sequential net = Net();
    net->to(TestDevice());
    TANDEM_ASSIGN_OR_RETURN(const int converted,
                            ConvertSyncBatchNorm(*net, world));
    EXPECT_EQ(converted, 2);
    TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, world));
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(step);
      const bool has = world.rank() > 0 && step < 3;
      ddp->ZeroGrad();
      const at::Tensor x = at::rand({has ? 1 : 0, 2, 11, 13}).to(TestDevice());
      const at::Tensor leaf = x.requires_grad_();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(leaf));
      EXPECT_EQ(y.size(0), x.size(0));
      EXPECT_FALSE(at::isnan(y).any().item<bool>());
      TANDEM_RETURN_IF_ERROR(ddp->Backward(y.sum()));
      EXPECT_FALSE(at::isnan(leaf.grad()).any().item<bool>());
      for (const auto& item : net->named_parameters()) {
        EXPECT_TRUE(item.value().grad().defined()) << item.key();
        EXPECT_FALSE(at::isnan(item.value().grad()).any().item<bool>())
            << item.key();
      }
      for (const auto& item : net->named_buffers()) {
        EXPECT_FALSE(at::isnan(item.value()).any().item<bool>()) << item.key();
      }
    }
    // What nobody had any of is no batch.
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 3);
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES_AND(EmptyBatchesTest, testing::Values(2, 3, 7));

}  // namespace
}  // namespace tandem::empty_batches_test
