// Training in which some parameters are each rank's own (parameters_to_ignore).

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem::ignored_parameters_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Between two layers that ranks have in common two of a width of their own.
LayerList ModelOf(int rank) {
  LayerList layers = PlainModel(3);
  layers.insert(layers.begin() + 2,
                SeededLinear("own1", kHidden, 3 + rank, 20 + rank));
  layers.insert(layers.begin() + 3,
                SeededLinear("own2", 3 + rank, kHidden, 40 + rank));
  return layers;
}

ReplicatedOptions OwnLayersIgnored() {
  ReplicatedOptions options;
  options.ddp.parameters_to_ignore = {"own1.weight", "own1.bias", "own2.weight",
                                      "own2.bias"};
  options.optimizer = SgdOptions{0.9};
  return options;
}

NamedTensors Part(const NamedTensors& tensors, bool own) {
  NamedTensors part;
  for (const auto& [name, tensor] : tensors) {
    if (absl::StartsWith(name, "own") == own) {
      part.emplace_back(name, tensor.detach().clone());
    }
  }
  return part;
}

// How many different values ranks have.
absl::StatusOr<size_t> Kinds(const NamedTensors& tensors, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(WeightsSha256(tensors)));
  return std::set<std::string>(all.begin(), all.end()).size();
}

// After every step: what is common has the same bits on all ranks, what is
// not, not; and both were trained.
absl::Status ExpectCommonAlike(const Strategy& strategy, Communicator& world) {
  const NamedTensors& all = strategy.Parameters();
  TANDEM_ASSIGN_OR_RETURN(const size_t common, Kinds(Part(all, false), world));
  TANDEM_ASSIGN_OR_RETURN(const size_t own, Kinds(Part(all, true), world));
  EXPECT_EQ(common, 1u);
  EXPECT_EQ(own, static_cast<size_t>(world.size()));
  return absl::OkStatus();
}

absl::Status TrainAlike(const ReplicatedOptions& options, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(auto strategy,
                          NewReplicated(ModelOf(world.rank()), options, world));
  TANDEM_RETURN_IF_ERROR(ExpectCommonAlike(*strategy, world));
  for (int step = 0; step < 5; ++step) {
    const std::string before =
        WeightsSha256(Part(strategy->Parameters(), true));
    const Batch batch = Share(GlobalBatch(step, 4 * world.size()), world);
    TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.1).status());
    TANDEM_RETURN_IF_ERROR(strategy->Synchronise());
    TANDEM_RETURN_IF_ERROR(ExpectCommonAlike(*strategy, world));
    EXPECT_NE(WeightsSha256(Part(strategy->Parameters(), true)), before);
  }
  return absl::OkStatus();
}

class IgnoredParametersTest : public DeviceTypeTest {};

TEST_P(IgnoredParametersTest, AreLeftAloneByAveragingOfGradients) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) {
    return TrainAlike(OwnLayersIgnored(), world);
  }));
}

TEST_P(IgnoredParametersTest, AreLeftAloneByAveragingOfParameters) {
  ReplicatedOptions options = OwnLayersIgnored();
  options.averaging = ParameterAveragingOptions{2, 1};
  for (int ranks : {2, 3}) {
    ExpectOk(RunDeviceRanks(ranks, [&](Communicator& world) {
      return TrainAlike(options, world);
    }));
  }
}

// The ignored gradients, another norm on each rank, would have every rank clip
// the averaged ones by another factor.
TEST_P(IgnoredParametersTest, HaveNoPartInTheNormOfTheOthers) {
  for (double type : {2., 1., 3., kInfinity}) {
    ReplicatedOptions options = OwnLayersIgnored();
    options.clip_value = 0.2;
    options.clip_norm = 0.03;
    options.clip_norm_type = type;
    ExpectOk(RunDeviceRanks(
        3, [&](Communicator& world) { return TrainAlike(options, world); }));
  }
}

double Distance(const NamedTensors& a, const NamedTensors& b, double type) {
  double sum = 0, greatest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double norm =
        at::linalg_vector_norm(a[i].second.sub(b[i].second), type)
            .item<double>();
    sum += std::isinf(type) ? 0 : std::pow(norm, type);
    greatest = std::max(greatest, norm);
  }
  return std::isinf(type) ? greatest : std::pow(sum, 1 / type);
}

TEST_P(IgnoredParametersTest, AreClippedByANormOfTheirOwn) {
  for (double type : {2., 1., kInfinity}) {
    ExpectOk(RunDeviceRanks(2, [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options = OwnLayersIgnored();
      options.clip_norm = 0.01;
      options.clip_norm_type = type;
      TANDEM_ASSIGN_OR_RETURN(
          auto strategy, NewReplicated(ModelOf(world.rank()), options, world));
      const NamedTensors live = strategy->Parameters();
      const NamedTensors common = Part(live, false);
      const NamedTensors own = Part(live, true);
      // The first step of momentum is the gradient itself.
      TANDEM_RETURN_IF_ERROR(
          strategy->TrainStep(Share(GlobalBatch(0, 8), world), 1).status());
      EXPECT_NEAR(Distance(Part(live, false), common, type), 0.01, 1e-5);
      EXPECT_NEAR(Distance(Part(live, true), own, type), 0.01, 1e-5);
      return absl::OkStatus();
    }));
  }
}

TEST_P(IgnoredParametersTest, ANormThatIsNotFiniteEndsTheJobWhenAsked) {
  for (bool error_if_nonfinite : {false, true}) {
    ExpectOk(RunDeviceRanks(2, [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options;
      options.clip_norm = 1;
      options.error_if_nonfinite = error_if_nonfinite;
      TANDEM_ASSIGN_OR_RETURN(auto strategy,
                              NewReplicated(PlainModel(3), options, world));
      Batch batch = Share(GlobalBatch(0, 8), world);
      if (world.rank() == 1) batch.inputs.fill_(std::nan(""));
      const absl::Status status = strategy->TrainStep(batch, 0.1).status();
      if (!error_if_nonfinite) return status;
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange,
                                   "the gradient of fc1.weight is not finite"));
      return absl::OkStatus();
    }));
  }
}

TANDEM_ON_DEVICE_TYPES(IgnoredParametersTest);

}  // namespace
}  // namespace tandem::ignored_parameters_test
