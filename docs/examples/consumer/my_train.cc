// tandem's trainer with a model and a data set of one's own, in any layout:
//   bazel run //:my_train -- --model=my_net --dataset=quadrants --epochs=3
//   ... --nproc_per_node=4 --pipe=2
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include "core/loss/loss_terms.h"
#include "core/random/random.h"
#include "datasets/registry.h"
#include "datasets/tensor_dataset.h"
#include "models/layers/module_layer.h"
#include "models/registry.h"
#include "tools/train_main.h"

namespace nn = torch::nn;

// Points of the plane; the classes are its quadrants.
absl::StatusOr<std::unique_ptr<tandem::Dataset>> Open(
    const tandem::DatasetOptions& options) {
  const bool trains = options.split == tandem::Split::kTrain;
  const at::Tensor points =
      at::randn({trains ? 4096 : 512, 2},
                tandem::GeneratorFor(options.seed, trains ? "train" : "test"));
  const at::Tensor side = points.gt(0).to(at::kLong);
  return tandem::MakeTensorDataset(
      points, side.select(1, 0) + 2 * side.select(1, 1), /*classes=*/4);
}

// Lines and metrics have it by this name.
at::Tensor CountActive(const at::Tensor& x) {
  tandem::AddSum("active", x.gt(0).sum());
  return x;
}

// Layers that can be cut into stages, around modules of LibTorch's.
absl::StatusOr<tandem::LayerSpecs> Make(const tandem::ModelOptions& data) {
  const auto hidden = [=] {
    return nn::Sequential(nn::Linear(data.input_shape[0], 32), nn::ReLU(),
                          nn::Functional(CountActive))
        .ptr();
  };
  const auto head = [=] { return nn::Linear(32, data.classes).ptr(); };
  return tandem::LayerSpecs{
      tandem::ModuleLayer<nn::SequentialImpl>("hidden", "hidden", hidden),
      tandem::ModuleLayer<nn::LinearImpl>("head", "head", head)};
}

int main(int argc, char** argv) {
  absl::Status registered = tandem::RegisterDataset("quadrants", Open);
  registered.Update(tandem::RegisterModel("my_net", Make));
  return tandem::TrainMain(argc, argv, registered);
}
