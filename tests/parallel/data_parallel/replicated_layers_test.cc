// A list of layers over several devices, in the strategy that trains any: the
// same training as on one device.

#include "parallel/data_parallel/replicated_layers.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/context/compute_context.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/model/statistics_records.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/cnn.h"
#include "models/layers/basic_layers.h"
#include "models/layers/dropout.h"
#include "models/mlp.h"
#include "models/transformer/gpt.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/data_parallel/replicated_state.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::replicated_layers_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSeed = 3;

struct Problem {
  std::string name;
  LayerSpecs specs;
  std::function<Batch(int step)> batch;
};

at::Generator GeneratorOf(int step) {
  return GeneratorFor(kSeed, absl::StrCat("batch ", step));
}

std::function<Batch(int)> Images(const std::vector<int64_t>& shape,
                                 int64_t samples) {
  return [=](int step) -> Batch {
    const at::Generator generator = GeneratorOf(step);
    std::vector<int64_t> sizes = {samples};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    return {at::randn(sizes, generator),
            at::randint(3, {samples}, generator, at::kLong), samples};
  };
}

Batch Tokens(int step) {
  const at::Generator generator = GeneratorOf(step);
  return {at::randint(11, {10, 6}, generator, at::kLong),
          at::randint(11, {10, 6}, generator, at::kLong), 10};
}

// Adds a loss of its own, of the samples that it sees.
LayerSpec Penalty() {
  LayerSpec spec;
  spec.name = "penalty";
  spec.make = [](uint64_t) {
    Layer made;
    made.name = "penalty";
    made.forward = [](const at::Tensor& x) {
      AddAuxiliaryLoss("square", x.square().mean());
      return x;
    };
    return made;
  };
  return spec;
}

std::vector<Problem> Problems() {
  GptOptions gpt;
  gpt.layers = 1;
  gpt.width = 8;
  gpt.heads = 2;
  gpt.context = 6;
  gpt.vocabulary = 11;
  gpt.ties_lm_head = true;
  return {
      {"masks of samples", MlpDropout({9, 3, 2, 7, 0.3}), Images({9}, 10)},
      {"skip connections", UnetTiny({1, 3}), Images({1, 8, 8}, 10)},
      {"tied weights", Gpt(gpt).value(), Tokens},
      {"a loss of a layer's",
       {LinearLayer("fc1", 9, 7), Penalty(), LinearLayer("fc2", 7, 3)},
       Images({9}, 10)},
  };
}

using Devices = std::vector<c10::Device>;

absl::StatusOr<LayerSpecs> Replicated(const LayerSpecs& specs,
                                      const Devices& devices) {
  const auto make = [&] { return MakeLayers(specs, kSeed); };
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers,
                          ReplicateOverDevices(make(), make, devices));
  return SpecsFromLayers(layers);
}

// The job of one rank's devices[rank * each], or of all of these.
LabJob JobOf(const Problem& problem, const LabLayout& layout,
             const Devices& devices, int each) {
  LabJob job;
  job.batch = problem.batch;
  job.test = 7;
  job.rate = 0.1;
  job.make =
      [=](Communicator* world) -> absl::StatusOr<std::unique_ptr<Strategy>> {
    const auto first = devices.begin() + ThisThreadsRank() * each;
    const Devices mine(first, first + each);
    LayerSpecs specs = problem.specs;
    if (each > 1) {
      TANDEM_ASSIGN_OR_RETURN(specs, Replicated(specs, mine));
    }
    MeshStrategyOptions options =
        LabOptions(layout, static_cast<int64_t>(specs.size()));
    options.devices = {mine[0]};
    options.seed = kSeed;
    // Adam would divide by gradients that are rounding alone.
    options.optimizer = SgdOptions{0.9};
    return MeshStrategy::Create(specs, CrossEntropy, options, world);
  };
  return job;
}

class ReplicatedLayersTest : public DeviceTypesAnd<int> {
 protected:
  static Devices DevicesOf(int n) {
    return DevicesToTest(std::get<0>(GetParam()), n);
  }
};

TEST_P(ReplicatedLayersTest, TrainAsOnOneDevice) {
  for (const Problem& problem : Problems()) {
    SCOPED_TRACE(problem.name);
    const LabLayout layout = LabLayoutNamed("sequential 1x1x1", 2);
    const auto run = [&](int each) {
      const Devices devices = DevicesOf(each);
      return TrainInLab(layout, JobOf(problem, layout, devices, each));
    };
    const auto expected = run(1);
    ExpectClose(run(value()), expected);
  }
}

// Two ranks of so many devices each, and their DDP.
TEST_P(ReplicatedLayersTest, UnderSeveralRanks) {
  const Problem problem = Problems()[0];
  const LabLayout layout = LabLayoutNamed("sequential 2x1x1", 2);
  const auto run = [&](int each) {
    const Devices devices = DevicesOf(2 * each);
    return TrainInLab(layout, JobOf(problem, layout, devices, each));
  };
  ExpectClose(run(value()), run(1));
}

// Names are those of one device, and so is a checkpoint.
TEST_P(ReplicatedLayersTest, StateOfOneDeviceServes) {
  const Problem problem = Problems()[2];
  const auto specs = Replicated(problem.specs, DevicesOf(value()));
  ASSERT_TRUE(specs.ok()) << specs.status();
  const NamedTensors found = NamedParameters(MakeLayers(*specs, 0));
  const NamedTensors expected =
      NamedParameters(MakeLayers(problem.specs, kSeed));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    EXPECT_TRUE(found[i].second.cpu().equal(expected[i].second));
  }
}

TEST_P(ReplicatedLayersTest, AnErrorNamesReplicaAndLayer) {
  LayerSpecs specs = {LinearLayer("fc1", 4, 4), LinearLayer("fc2", 4, 2)};
  specs[1].make = [make = specs[1].make](uint64_t seed) {
    Layer layer = make(seed);
    layer.forward = [](const at::Tensor& x) -> at::Tensor {
      TORCH_CHECK(x.size(0) > 1, "too few");
      return x;
    };
    return layer;
  };
  const Devices devices = DevicesOf(value());
  const auto replicated = Replicated(specs, devices);
  ASSERT_TRUE(replicated.ok()) << replicated.status();
  const LayerList layers = MakeLayers(*replicated, 0);
  const int64_t rows = 2 * value() - 1;
  try {
    Forward(layers, at::randn({rows, 4}).to(devices[0]));
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(
        error.what_without_backtrace(),
        AllOf(HasSubstr(absl::StrCat("replica ", value() - 1, " of ", value(),
                                     ", on ", devices.back().str(), ": ")),
              HasSubstr("too few"), HasSubstr("in layer fc2")));
  }
}

TEST_P(ReplicatedLayersTest, RecordedStatisticsAreRefused) {
  const at::Tensor x = at::randn({4, 4, 1, 1}).to(DevicesOf(1)[0]);
  const auto forward = [&](const LayerSpecs& specs) {
    const auto replicated = Replicated(specs, DevicesOf(value()));
    const LayerList layers = MakeLayers(*replicated, 0);
    StatisticsRecords records(layers);
    records.Begin(1);
    Microbatch microbatch;
    microbatch.records = &records;
    const MicrobatchScope scope(microbatch);
    return Forward(layers, x);
  };
  EXPECT_EQ(forward({ReluLayer("relu")}).size(0), 4);  // there are none
  EXPECT_THROW(forward({BatchNorm2dLayer("norm", 4)}), c10::Error);
}

TEST_P(ReplicatedLayersTest, SharedStatisticsAreRefused) {
  ExpectOk(RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    const at::Tensor x = at::randn({4, 4, 2, 2}).to(DevicesOf(1)[0]);
    TANDEM_ASSIGN_OR_RETURN(
        const LayerSpecs replicated,
        Replicated({BatchNorm2dLayer("norm", 4)}, DevicesOf(value())));
    const LayerList layers = MakeLayers(replicated, 0);
    EXPECT_EQ(Forward(layers, x).size(0), 4);
    TANDEM_RETURN_IF_ERROR(ConvertSyncBatchNorm(layers, world).status());
    EXPECT_THROW(Forward(layers, x), c10::ValueError);
    return absl::OkStatus();
  }));
}

TEST(ReplicatedLayersErrorTest, NoLayers) {
  EXPECT_EQ(Replicated({}, {c10::kCPU, c10::kCPU}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TANDEM_ON_DEVICE_TYPES_AND(ReplicatedLayersTest, testing::Values(2, 3, 4));

// Sums of replicas' gradients.

using Tensors = std::vector<at::Tensor>;

class GradientTreeTest : public DeviceTypesAnd<int> {
 protected:
  std::vector<c10::Device> devices() const {
    return DevicesToTest(std::get<0>(GetParam()), value());
  }
  // Device i has a tensor of so many 2^i, of several dtypes and sizes.
  std::vector<Tensors> Gradients() const {
    std::vector<Tensors> all(4);
    for (int i = 0; i < value(); ++i) {
      const c10::Device device = devices()[static_cast<size_t>(i)];
      const double number = 1 << i;
      all[0].push_back(at::full({3, 5}, number).to(device));
      all[1].push_back(at::full({}, number).to(device));
      all[2].push_back(at::full({1 << 15}, number).to(device));
      all[3].push_back(at::full({2}, number, at::kDouble).to(device));
    }
    return all;
  }
};

TEST_P(GradientTreeTest, SumsEveryDeviceOnce) {
  for (const Tensors& each : Gradients()) {
    const at::Tensor sum = SumOverDevices(each, devices());
    EXPECT_TRUE(IsOn(sum, devices()[0]));
    EXPECT_TRUE(sum.cpu().eq((1 << value()) - 1).all().item<bool>());
    EXPECT_EQ(sum.sizes(), each[0].sizes());
    // What came in is as it was.
    EXPECT_TRUE(each[0].cpu().eq(1).all().item<bool>());
  }
}

// What a sum in another order would round away.
TEST_P(GradientTreeTest, InTheOrderOfABinaryTree) {
  if (value() != 3 && value() != 4) return;
  Tensors all;
  const std::vector<double> numbers = {1, 1e8, -1e8, 1};
  for (int i = 0; i < value(); ++i) {
    all.push_back(at::scalar_tensor(numbers[static_cast<size_t>(i)])
                      .to(devices()[static_cast<size_t>(i)]));
  }
  const float expected =
      value() == 3 ? (1.f + 1e8f) + -1e8f : (1.f + 1e8f) + (-1e8f + 1.f);
  EXPECT_EQ(SumOverDevices(all, devices()).item<float>(), expected);
}

TEST_P(GradientTreeTest, UndefinedOnesCountAsZero) {
  const Tensors none(static_cast<size_t>(value()));
  EXPECT_FALSE(SumOverDevices(none, devices()).defined());
  if (value() == 1) return;
  for (int missing = 0; missing < value(); ++missing) {
    Tensors all = Gradients()[1];
    all[static_cast<size_t>(missing)].reset();
    const at::Tensor sum = SumOverDevices(all, devices());
    EXPECT_EQ(sum.item<float>(), (1 << value()) - 1 - (1 << missing));
    EXPECT_TRUE(IsOn(sum, devices()[0]));
  }
}

TEST_P(GradientTreeTest, SparseOnesAndDenseOnes) {
  if (std::get<0>(GetParam()) != c10::kCPU) return;  // simulated ones have none
  const at::Tensor sparse = at::sparse_coo_tensor(
      at::full({1, 1}, 1, at::kLong), at::full({1}, 2.), {3});
  Tensors alike, mixed;
  for (int i = 0; i < value(); ++i) {
    alike.push_back(sparse);
    mixed.push_back(i % 2 == 0 ? sparse : at::ones({3}));
  }
  const at::Tensor sum = SumOverDevices(alike, devices());
  EXPECT_EQ(sum.to_dense()[1].item<float>(), 2 * value());
  const int dense = value() / 2;
  const at::Tensor other = SumOverDevices(mixed, devices());
  const at::Tensor both = dense > 0 ? other : other.to_dense();
  EXPECT_EQ(both[1].item<float>(), dense + 2 * (value() - dense));
  EXPECT_EQ(both[0].item<float>(), dense);
}

TANDEM_ON_DEVICE_TYPES_AND(GradientTreeTest, testing::Values(1, 2, 3, 4, 7));

}  // namespace
}  // namespace tandem::replicated_layers_test
