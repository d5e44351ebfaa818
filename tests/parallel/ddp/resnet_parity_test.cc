// ResNet-18 on two ranks against Python's DistributedDataParallel with
// torchvision's ResNet-18 (make_ddp_parity.py): five steps in float64, with
// broadcast_buffers on and off, and one step in float32, in which the network
// is unstable: its rounding errors grow a hundredfold with every step.
//
// Python's numbers were recorded on one processor. Of five values of each
// tensor that grown error is allowed. Every parameter and buffer has the bits
// that this processor computes without data parallelism: of two numbers' sum,
// and its half, no processor makes something else. Both hold for a network of
// torch::nn's modules and for models/resnet.h, which has convolutions of its
// own.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/digest/sha256.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gtest/gtest.h"
#include "models/resnet.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/optimizer_options.h"
#include "tests/models/formula_values.h"
#include "tests/models/rounding.h"
#include "tests/parallel/ddp/parity_cases.h"
#include "tests/parallel/ddp/plain_resnet.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kBatch = 4;
constexpr int64_t kClasses = 10;

const json& Stored() {
  static const json* const stored = [] {
    std::ifstream file("tests/parallel/ddp/testdata/ddp_parity_resnet.json");
    return new json(json::parse(file));
  }();
  return *stored;
}

using PlainModel = std::shared_ptr<PlainResnet18>;

template <typename Model>
Model MakeModel(at::ScalarType dtype) {
  Model model;
  if constexpr (std::is_same_v<Model, LayerList>) {
    model = MakeLayers(Resnet18({3, kClasses}), 1);
  } else {
    model = std::make_shared<PlainResnet18>(kClasses);
  }
  at::NoGradGuard no_grad;
  NamedTensors state = ModuleTraits<Model>::Parameters(model);
  for (auto& buffer : ModuleTraits<Model>::Buffers(model)) {
    state.push_back(buffer);
  }
  for (auto& [name, tensor] : state) {
    if (!tensor.is_floating_point()) continue;
    FillByFormula(name, tensor);
    tensor.set_data(tensor.to(dtype));
  }
  return model;
}

at::Tensor Images(int step, int rank, at::ScalarType dtype) {
  at::Tensor images = at::empty({kBatch, 3, 32, 32});
  FillByFormula(absl::StrCat("images.", step, ".", rank), images);
  return images.to(dtype);
}

at::Tensor Loss(const at::Tensor& outputs, int step, int rank) {
  return at::cross_entropy_loss(outputs, at::arange(kBatch, at::kLong)
                                             .mul(3)
                                             .add(step + 2 * rank)
                                             .remainder(kClasses));
}

std::string HexDigest(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().contiguous();
  Sha256 hash;
  hash.Update(values.const_data_ptr(), values.numel() * values.element_size());
  return hash.HexDigest();
}

// `stored`: by name, a digest and a few values, evenly spread. Returns whether
// all digests are the stored ones, too.
bool ExpectNear(const NamedTensors& tensors, const json& stored,
                double tolerance, const std::string& where) {
  bool same_bits = true;
  EXPECT_EQ(tensors.size(), stored.size()) << where;
  for (const auto& [name, tensor] : tensors) {
    const json& expected = stored.at(name);
    same_bits = same_bits && HexDigest(tensor) == expected[0];
    const auto values = expected[1].get<std::vector<double>>();
    const int64_t count = values.size();
    const at::Tensor flat = tensor.detach().contiguous().flatten();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place =
          i * (flat.numel() - 1) / std::max<int64_t>(count - 1, 1);
      EXPECT_NEAR(flat[place].item<double>(), values[i], tolerance)
          << where << ": " << name << "[" << place << "]";
    }
  }
  return same_bits;
}

struct Job {
  at::ScalarType dtype;
  std::string stored;
  int steps;
  bool broadcast_buffers;
};

// Half a unit of the dtype, grown with every step. Weights are of the order of
// 1; the rate of 0.01, by which their errors are smaller, is the reserve.
double Tolerance(const Job& job) {
  return UnitAtOne(job.dtype) / 2 * std::pow(100, job.steps);
}

template <typename Model>
std::vector<at::Tensor> Parameters(const Model& model) {
  std::vector<at::Tensor> parameters;
  for (const auto& each : ModuleTraits<Model>::Parameters(model)) {
    parameters.push_back(each.second);
  }
  return parameters;
}

constexpr double kLearningRate = 0.01;

// Called as Python calls it: tandem's own rounds the rests of vectors
// otherwise.
template <typename Model>
PythonOptimizer MakeOptimizer(const Model& model) {
  return PythonOptimizer(SgdOptions{/*momentum=*/0.9}, Parameters(model));
}

template <typename Model>
absl::StatusOr<Model> Train(const Job& job, Communicator& world) {
  at::set_num_threads(1);
  const auto model = MakeModel<Model>(job.dtype);
  DistributedDataParallelOptions options;
  options.broadcast_buffers = job.broadcast_buffers;
  TANDEM_ASSIGN_OR_RETURN(auto ddp,
                          MakeDistributedDataParallel(model, world, options));
  PythonOptimizer optimizer = MakeOptimizer(model);
  for (int step = 0; step < job.steps; ++step) {
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor outputs,
        ddp->Forward(Images(step, world.rank(), job.dtype)));
    TANDEM_RETURN_IF_ERROR(ddp->Backward(Loss(outputs, step, world.rank())));
    optimizer.Step(kLearningRate);
  }
  return model;
}

// Both ranks on this thread, without DistributedDataParallel.
template <typename Model>
class ByHand {
 public:
  explicit ByHand(const Job& job) : job_(job) {
    at::set_num_threads(1);
    for (Model& model : models_) {
      model = MakeModel<Model>(job.dtype);
      optimizers_.push_back(MakeOptimizer(model));
    }
  }

  // The models of rank 0 and rank 1.
  std::array<Model, 2> Train() {
    for (int step = 0; step < job_.steps; ++step) {
      if (job_.broadcast_buffers) CopyBuffers();
      for (int rank = 0; rank < 2; ++rank) Backward(step, rank);
      FormMeans();
      for (PythonOptimizer& optimizer : optimizers_) {
        optimizer.Step(kLearningRate);
      }
    }
    return models_;
  }

 private:
  void CopyBuffers() {
    at::NoGradGuard no_grad;
    const NamedTensors from = ModuleTraits<Model>::Buffers(models_[0]);
    const NamedTensors to = ModuleTraits<Model>::Buffers(models_[1]);
    for (size_t i = 0; i < from.size(); ++i) to[i].second.copy_(from[i].second);
  }

  void Backward(int step, int rank) {
    for (at::Tensor& parameter : Parameters(models_[rank])) {
      parameter.mutable_grad().reset();
    }
    const at::Tensor outputs = ModuleTraits<Model>::Call(
        models_[rank], Images(step, rank, job_.dtype));
    Loss(outputs, step, rank).backward();
  }

  void FormMeans() {
    const std::vector<at::Tensor> first = Parameters(models_[0]);
    const std::vector<at::Tensor> second = Parameters(models_[1]);
    for (size_t i = 0; i < first.size(); ++i) {
      first[i].grad().add_(second[i].grad()).div_(2);
      second[i].grad().copy_(first[i].grad());
    }
  }

  const Job& job_;
  std::array<Model, 2> models_;
  std::vector<PythonOptimizer> optimizers_;
};

void ExpectSameBits(const NamedTensors& actual, const NamedTensors& by_hand,
                    const std::string& where) {
  ASSERT_EQ(actual.size(), by_hand.size()) << where;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(HexDigest(actual[i].second), HexDigest(by_hand[i].second))
        << where << ": " << actual[i].first << " is not as computed by hand";
  }
}

template <typename Model>
void ExpectPythons(const Job& job, const std::string& backend) {
  using Traits = ModuleTraits<Model>;
  const json& stored = Stored().at(job.stored);
  const std::array<Model, 2> expected = ByHand<Model>(job).Train();
  std::atomic<bool> pythons_bits{true};
  CommunicatorOptions options;
  options.backend = backend;
  const auto body = [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const Model model, Train<Model>(job, world));
    const Model& own = expected[world.rank()];
    const std::string where = absl::StrCat("rank ", world.rank());
    ExpectSameBits(Traits::Parameters(model), Traits::Parameters(own), where);
    ExpectSameBits(Traits::Buffers(model), Traits::Buffers(own), where);
    const json& buffers = stored.at(job.broadcast_buffers ? "broadcast_buffers"
                                                          : "local_buffers");
    if (!ExpectNear(Traits::Parameters(model), stored.at("parameters"),
                    Tolerance(job), where) ||
        !ExpectNear(Traits::Buffers(model), buffers.at(world.rank()),
                    Tolerance(job), where)) {
      pythons_bits = false;
    }
    return absl::OkStatus();
  };
  ExpectOk(RunThreadRanks(2, body, options));
  testing::Test::RecordProperty(std::is_same_v<Model, LayerList>
                                    ? "own_convolutions_give_pythons_bits"
                                    : "pythons_bits",
                                pythons_bits ? "yes" : "no");
}

void ExpectPythonsOfBothNetworks(const Job& job, const std::string& backend) {
  ExpectPythons<PlainModel>(job, backend);
  ExpectPythons<LayerList>(job, backend);
}

class DdpResnetParity : public testing::TestWithParam<std::string> {};

TEST_P(DdpResnetParity, FiveStepsInFloat64WithBroadcastBuffers) {
  ExpectPythonsOfBothNetworks({at::kDouble, "float64", 5, true}, GetParam());
}

TEST_P(DdpResnetParity, FiveStepsInFloat64WithLocalBuffers) {
  ExpectPythonsOfBothNetworks({at::kDouble, "float64", 5, false}, GetParam());
}

TEST_P(DdpResnetParity, OneStepInFloat32) {
  ExpectPythonsOfBothNetworks({at::kFloat, "float32_one_step", 1, true},
                              GetParam());
}

INSTANTIATE_TEST_SUITE_P(Backends, DdpResnetParity,
                         testing::Values("gloo", "shm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
