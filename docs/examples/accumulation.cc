// Gradients of several batches, averaged over the ranks once:
//   bazel run //docs/examples:accumulation -- --nproc_per_node=2
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/run/run_program.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"

constexpr int kBatches = 4;

absl::Status Train(tandem::Rank& rank) {
  auto model = std::make_shared<torch::nn::LinearImpl>(8, 1);
  TANDEM_ASSIGN_OR_RETURN(
      auto ddp, tandem::MakeDistributedDataParallel(model, rank.world));
  TANDEM_ASSIGN_OR_RETURN(
      auto optimizer,
      tandem::MakeOptimizer(tandem::AdamOptions{}, ddp->flat_buffers()));
  for (int step = 1; step <= 300; ++step) {
    ddp->ZeroGrad();
    at::Tensor loss;
    for (int i = 0; i < kBatches; ++i) {
      std::optional<tandem::NoSyncGuard> no_sync;
      if (i + 1 < kBatches) no_sync.emplace(ddp->no_sync());
      const at::Tensor x = at::rand({8, 8});
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(x));
      loss = at::mse_loss(y, x.sum(1, /*keepdim=*/true));
      TANDEM_RETURN_IF_ERROR(ddp->Backward(loss / kBatches));
    }
    tandem::ClipGradientNorm(ddp->flat_buffers(), /*max_norm=*/1.0);
    optimizer->Step(/*learning_rate=*/0.03);
    if (rank.rank() == 0 && step % 100 == 0) {
      std::printf("step %d: loss %.6f\n", step, loss.item<double>());
    }
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  return tandem::RunProgram(argc, argv, {"accumulation", "Trains a sum."},
                            Train);
}
