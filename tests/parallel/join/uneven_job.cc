// A job with uneven inputs, for fault tests: rank 0 has two batches, the others
// a thousand; layers normalise together where SYNC_BATCH_NORM is set, and then
// all have a thousand. Its tensors lie on the test's device.

#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "core/base/status_macros.h"
#include "core/instrument/fault_point.h"
#include "core/run/run_program.h"
#include "core/testing/device_types.h"
#include "core/testing/thread_ranks.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/join/join.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"

namespace tandem {
namespace {

using torch::nn::Linear;

absl::Status Iterate(DistributedDataParallel<torch::nn::Sequential>& ddp) {
  ddp.ZeroGrad();
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                          ddp.Forward(at::rand({3, 8}).to(TestDevice())));
  return ddp.Backward(y.square().sum());
}

absl::Status Train(Rank& rank) {
  const bool normalises = std::getenv("SYNC_BATCH_NORM") != nullptr;
  torch::nn::Sequential net(Linear(8, 8), torch::nn::BatchNorm1d(8),
                            Linear(8, 8));
  net->to(TestDevice());
  std::vector<int> all(static_cast<size_t>(rank.size()));
  std::iota(all.begin(), all.end(), 0);
  TANDEM_ASSIGN_OR_RETURN(
      const auto statistics,
      rank.world.Subgroup(all, "statistics",
                          SubgroupForTestDevice(rank.world)));
  if (normalises) {
    TANDEM_RETURN_IF_ERROR(ConvertSyncBatchNorm(*net, *statistics).status());
  }
  TANDEM_ASSIGN_OR_RETURN(auto ddp,
                          MakeDistributedDataParallel(net, rank.world));
  TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
  const int batches = rank.rank() == 0 && !normalises ? 2 : 1000;
  for (int i = 0; i < batches; ++i) {
    SetFaultContext(rank.rank(), i + 1);
    TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
    TANDEM_RETURN_IF_ERROR(Iterate(*ddp));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  SetFaultContext(rank.rank(), 0);
  return join.Finish();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::RunOptions options;
  options.name = "uneven_job";
  options.usage = "Trains on uneven inputs, for tests.\n";
  options.communication.backend = tandem::TestBackend();
  options.communication.timeout = std::chrono::seconds(60);
  options.communication = tandem::WithTestDevice(options.communication);
  return tandem::RunProgram(argc, argv, options, tandem::Train);
}
