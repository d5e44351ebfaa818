// A list of layers over several devices, in the strategy that trains any: the
// same training as on one device.

#include "parallel/data_parallel/replicated_layers.h"

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/model/microbatch_scope.h"
#include "core/model/statistics_records.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/dropout.h"
#include "models/mlp.h"
#include "models/transformer/gpt.h"
#include "models/unet.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/sync_batch_norm/convert.h"
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
  return SpecsOf(layers);
}

// Of one rank's devices[rank * each], or of all of these.
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
    LabLayout layout;
    layout.schedule = "sequential";
    layout.microbatches = 2;
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
  LabLayout layout;
  layout.schedule = "sequential";
  layout.replicas = 2;
  layout.microbatches = 2;
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

}  // namespace
}  // namespace tandem::replicated_layers_test
