// Distributed data parallel, with a module and a training loop of one's own:
//   bazel run //docs/examples:ddp -- --nproc_per_node=2
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <memory>

#include "core/base/status_macros.h"
#include "core/run/run_program.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"

// Each rank learns from samples of its own that y is the sum of the x.
absl::Status Train(tandem::Rank& rank) {
  auto model = std::make_shared<torch::nn::LinearImpl>(8, 1);
  TANDEM_ASSIGN_OR_RETURN(
      auto ddp, tandem::MakeDistributedDataParallel(model, rank.world));
  TANDEM_ASSIGN_OR_RETURN(
      auto optimizer,
      tandem::MakeOptimizer(tandem::AdamOptions{}, ddp->flat_buffers()));
  for (int step = 1; step <= 900; ++step) {
    const at::Tensor x = at::rand({32, 8});
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(x));
    at::Tensor loss;
    TANDEM_RETURN_IF_ERROR(ddp->Backward(
        [&] { return loss = at::mse_loss(y, x.sum(1, /*keepdim=*/true)); }));
    optimizer->Step(/*learning_rate=*/0.03);
    if (rank.rank() == 0 && step % 300 == 0) {
      std::printf("step %d: loss %.6f\n", step, loss.item<double>());
    }
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  return tandem::RunProgram(argc, argv, {"ddp", "Trains a sum."}, Train);
}
