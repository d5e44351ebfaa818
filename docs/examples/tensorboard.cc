// Curves, histograms and a text for TensorBoard, from any loop:
//   bazel run //docs/examples:tensorboard -- /tmp/runs/first
//   tensorboard --logdir=/tmp/runs
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <string>

#include "core/base/status_macros.h"
#include "core/tensorboard/event_writer.h"

absl::Status Train(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const auto events,
                          tandem::EventWriter::Create(folder));
  TANDEM_RETURN_IF_ERROR(events->AddText("settings", "**sgd**, 0.05", 0));
  torch::nn::Linear model(8, 1);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.05);
  for (int step = 1; step <= 300; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = at::rand({64, 8});
    const at::Tensor loss = at::mse_loss(model(x), x.sum(1, /*keepdim=*/true));
    loss.backward();
    optimizer.step();
    TANDEM_RETURN_IF_ERROR(
        events->AddScalar("train/loss", loss.item<double>(), step));
    if (step % 100 != 0) continue;
    TANDEM_RETURN_IF_ERROR(
        events->AddHistogram("weights/weight", model->weight, step));
    TANDEM_RETURN_IF_ERROR(
        events->AddHistogram("gradients/weight", model->weight.grad(), step));
    std::printf("step %d: loss %.6f\n", step, loss.item<double>());
  }
  return events->Flush();
}

int main(int argc, char** argv) {
  const absl::Status trained = Train(argc > 1 ? argv[1] : "runs");
  if (!trained.ok()) std::fprintf(stderr, "%s\n", trained.ToString().c_str());
  return trained.ok() ? 0 : 1;
}
