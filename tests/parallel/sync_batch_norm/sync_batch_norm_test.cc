// SyncBatchNorm against BatchNorm with the whole batch in one process.

#include "parallel/sync_batch_norm/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/fingerprint.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::sync_batch_norm_test {
namespace {

using testing::Each;
using testing::HasSubstr;
using torch::nn::BatchNormOptions;

constexpr int64_t kChannels = 3;

// Rank r's samples: 2, 0, 5, 1, 4, 0, 3.
int64_t SamplesOf(int rank) {
  const std::vector<int64_t> sizes = {2, 0, 5, 1, 4, 0, 3};
  return sizes[static_cast<size_t>(rank)];
}

std::vector<int64_t> ShapeOf(int64_t samples, int dimensions) {
  std::vector<int64_t> shape = {samples, kChannels};
  for (int i = 0; i < dimensions; ++i) shape.push_back(4 - i);
  return shape;
}

// Far from zero, where a sum of squares would have no digits left.
at::Tensor Values(const std::string& name, int rank, int dimensions) {
  const at::Generator generator = GeneratorFor(7, absl::StrCat(name, rank));
  return at::randn(ShapeOf(SamplesOf(rank), dimensions), generator,
                   at::TensorOptions(at::kDouble)) *
             (rank + 1) +
         40 + rank;
}

struct Outcome {
  at::Tensor y, dx, of_weight, of_bias, running_mean, running_var;
  int64_t batches = 0;
};

template <typename Norm>
void FillWeights(Norm& norm) {
  if (!norm->weight.defined()) return;
  const at::NoGradGuard no_grad;
  norm->weight.copy_(at::arange(1, kChannels + 1, at::kDouble) / 2);
  norm->bias.copy_(at::arange(kChannels, at::kDouble) - 1);
}

// Two steps, so that running statistics are taken in twice.
template <typename Norm>
Outcome TwoSteps(Norm& norm, const at::Tensor& x, const at::Tensor& dy) {
  Outcome outcome;
  const at::Tensor leaf = x.detach().clone().requires_grad_();
  norm->forward(x * 0.5 + 1);
  outcome.y = norm->forward(leaf);
  outcome.y.backward(dy);
  outcome.dx = leaf.grad();
  if (norm->weight.defined()) {
    outcome.of_weight = norm->weight.grad();
    outcome.of_bias = norm->bias.grad();
  }
  outcome.running_mean = norm->running_mean;
  outcome.running_var = norm->running_var;
  if (norm->num_batches_tracked.defined()) {
    outcome.batches = norm->num_batches_tracked.template item<int64_t>();
  }
  return outcome;
}

at::Tensor AsImages(const at::Tensor& values) {
  if (values.dim() == 2) return values.unsqueeze(-1).unsqueeze(-1);
  return values.flatten(2).unsqueeze(-1);
}

// One process with all ranks' samples.
Outcome Expected(int ranks, int dimensions, const BatchNormOptions& options) {
  std::vector<at::Tensor> x, dy;
  for (int rank = 0; rank < ranks; ++rank) {
    x.push_back(AsImages(Values("x", rank, dimensions)));
    dy.push_back(AsImages(Values("dy", rank, dimensions)));
  }
  torch::nn::BatchNorm2d whole(options);
  whole->to(at::kDouble);
  FillWeights(whole);
  return TwoSteps(whole, at::cat(x), at::cat(dy));
}

void ExpectNear(const at::Tensor& found, const at::Tensor& expected,
                double tolerance, const std::string& what) {
  ASSERT_EQ(found.defined(), expected.defined()) << what;
  if (!found.defined()) return;
  ASSERT_EQ(found.numel(), expected.numel()) << what;
  const at::Tensor found_values =
      found.detach().to(at::kCPU, at::kDouble).flatten();
  const at::Tensor expected_values =
      expected.detach().to(at::kCPU, at::kDouble).flatten();
  EXPECT_TRUE(at::allclose(found_values, expected_values, tolerance, tolerance))
      << what << ": " << found_values << " instead of " << expected_values;
}

using Setting = std::tuple<int, std::string>;

// TestBackend(), if it is told.
std::string BackendOf(const std::string& given) {
  return std::getenv("TANDEM_TEST_BACKEND") == nullptr ? given : TestBackend();
}

class SyncBatchNormTest : public DeviceTypesAnd<Setting> {
 protected:
  int ranks() const { return std::get<0>(value()); }

  void OnRanks(const std::function<absl::Status(Communicator&)>& body) {
    CommunicatorOptions options;
    options.backend = BackendOf(std::get<1>(value()));
    ExpectOk(RunThreadRanks(
        ranks(), body, [&] { return WithTestDevice(options); },
        options.timeout));
  }

  // Outputs, gradients and running statistics are the whole batch's.
  void ExpectWholeBatch(int dimensions, const BatchNormOptions& options,
                        at::ScalarType type, double tolerance) {
    const Outcome expected = Expected(ranks(), dimensions, options);
    OnRanks([&](Communicator& world) -> absl::Status {
      SyncBatchNorm norm(options, world);
      norm->to(TestDevice(), type);
      FillWeights(norm);
      const auto mine = [&](const std::string& name) {
        return Values(name, world.rank(), dimensions).to(TestDevice(), type);
      };
      Outcome found = TwoSteps(norm, mine("x"), mine("dy"));
      int64_t first = 0;
      for (int r = 0; r < world.rank(); ++r) first += SamplesOf(r);
      const auto part = [&](const at::Tensor& whole) {
        return whole.narrow(0, first, SamplesOf(world.rank()));
      };
      EXPECT_EQ(found.y.scalar_type(), type);
      ExpectNear(found.y, part(expected.y), tolerance, "output");
      ExpectNear(found.dx, part(expected.dx), tolerance * 10, "gradient");
      for (at::Tensor* each : {&found.of_weight, &found.of_bias}) {
        if (!each->defined()) continue;
        *each = each->to(at::kDouble);
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(*each));
      }
      ExpectNear(found.of_weight, expected.of_weight, tolerance * 10, "weight");
      ExpectNear(found.of_bias, expected.of_bias, tolerance * 10, "bias");
      ExpectNear(found.running_mean, expected.running_mean, tolerance, "mean");
      ExpectNear(found.running_var, expected.running_var, tolerance, "var");
      EXPECT_EQ(found.batches, expected.batches);
      return absl::OkStatus();
    });
  }
};

TEST_P(SyncBatchNormTest, IsBatchNormOfTheWholeBatch) {
  for (const int dimensions : {0, 1, 2, 3}) {
    SCOPED_TRACE(dimensions);
    ExpectWholeBatch(dimensions, BatchNormOptions(kChannels), at::kDouble,
                     1e-11);
  }
}

// Half an ulp of what is 40 away from zero is 2e-6, before it is divided by the
// deviation; dy is of that size too.
TEST_P(SyncBatchNormTest, InFloat) {
  ExpectWholeBatch(2, BatchNormOptions(kChannels), at::kFloat, 2e-4);
}

TEST_P(SyncBatchNormTest, WithEachOption) {
  BatchNormOptions cumulative(kChannels);
  cumulative.momentum(std::nullopt);
  ExpectWholeBatch(2, cumulative, at::kDouble, 1e-11);
  BatchNormOptions other(kChannels);
  other.momentum(0.7).eps(0.5);
  ExpectWholeBatch(2, other, at::kDouble, 1e-11);
  BatchNormOptions plain(kChannels);
  plain.affine(false).track_running_stats(false);
  ExpectWholeBatch(2, plain, at::kDouble, 1e-11);
}

// Running statistics, and what gradients are made of.
TEST_P(SyncBatchNormTest, AllRanksHaveTheSameBits) {
  OnRanks([&](Communicator& world) -> absl::Status {
    SyncBatchNorm norm(BatchNormOptions(kChannels), world);
    norm->to(TestDevice());
    for (int step = 0; step < 3; ++step) {
      norm->forward(Values("x", world.rank(), 2).to(TestDevice(), at::kFloat));
    }
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        world.AllGatherString(WeightsSha256(
            {{"mean", norm->running_mean}, {"var", norm->running_var}})));
    for (const std::string& each : all) EXPECT_EQ(each, all[0]);
    return absl::OkStatus();
  });
}

// In evaluation ranks may differ in what they do.
TEST_P(SyncBatchNormTest, EvaluationSendsNothing) {
  OnRanks([&](Communicator& world) -> absl::Status {
    SyncBatchNorm norm(BatchNormOptions(kChannels), world);
    torch::nn::BatchNorm2d alone(kChannels);
    norm->to(TestDevice());
    norm->eval();
    alone->eval();
    for (int i = 0; i < world.rank(); ++i) {
      const at::Tensor x = Values("x", 2, 2).to(at::kFloat);
      ExpectNear(norm->forward(x.to(TestDevice())), alone->forward(x), 1e-6,
                 "output");
    }
    return world.Barrier();
  });
}

TANDEM_ON_DEVICE_TYPES_AND(SyncBatchNormTest,
                           testing::Values(Setting{1, "shm"}, Setting{2, "shm"},
                                           Setting{3, "gloo"},
                                           Setting{4, "shm"}, Setting{5, "shm"},
                                           Setting{6, "gloo"},
                                           Setting{7, "shm"}));

SyncBatchNorm NewNorm(Communicator& group) {
  SyncBatchNorm norm(BatchNormOptions(kChannels), group);
  norm->to(TestDevice());
  return norm;
}

absl::Status OnTwo(const std::function<absl::Status(Communicator&)>& body) {
  return RunDeviceRanks(2, body);
}

// A group of one is BatchNorm, bit for bit.
TEST(SyncBatchNormOfOneTest, IsBatchNorm) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) {
    SyncBatchNorm norm = NewNorm(world);
    torch::nn::BatchNorm2d alone(kChannels);
    alone->to(TestDevice());
    const at::Tensor x = Values("x", 2, 2).to(TestDevice(), at::kFloat);
    const at::Tensor dy = Values("dy", 2, 2).to(TestDevice(), at::kFloat);
    const Outcome found = TwoSteps(norm, x, dy);
    const Outcome expected = TwoSteps(alone, x, dy);
    EXPECT_TRUE(at::equal(found.y, expected.y));
    EXPECT_TRUE(at::equal(found.dx, expected.dx));
    EXPECT_TRUE(at::equal(found.running_var, expected.running_var));
    return absl::OkStatus();
  }));
}

// test_DistributedDataParallel_SyncBatchNorm_Channels_Last.
TEST(SyncBatchNormLayoutTest, ChannelsLastStays) {
  ExpectOk(OnTwo([](Communicator& world) {
    SyncBatchNorm norm = NewNorm(world);
    SyncBatchNorm same = NewNorm(world);
    const at::Tensor x =
        Values("x", 2, 2).to(TestDevice(), at::kFloat).requires_grad_();
    const at::Tensor last =
        x.detach().contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    const at::Tensor y = norm->forward(last);
    EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
    const at::Tensor expected = same->forward(x);
    ExpectNear(y, expected, 1e-5, "output");
    y.square().sum().backward();
    expected.square().sum().backward();
    ExpectNear(last.grad(), x.grad(), 1e-4, "gradient");
    return absl::OkStatus();
  }));
}

// test_SyncBatchNorm_process_group: ranks 0 and 2, 1 and 3 normalise together.
TEST(SyncBatchNormGroupTest, StatisticsAreTheGroupsAlone) {
  ExpectOk(RunDeviceRanks(4, [](Communicator& world) -> absl::Status {
    const int first = world.rank() % 2;
    TANDEM_ASSIGN_OR_RETURN(const auto pair,
                            world.Subgroup({first, first + 2}, "pair",
                                           SubgroupForTestDevice(world)));
    SyncBatchNorm norm = NewNorm(*pair);
    const at::Tensor y = norm->forward(at::full(
        {2, kChannels}, 10.0 * first + world.rank() / 2, TestDevice()));
    ExpectNear(y, at::full_like(y, world.rank() < 2 ? -1.0 : 1.0), 1e-4,
               "output");
    ExpectNear(norm->running_mean,
               at::full({kChannels}, 0.1 * (10.0 * first + 0.5)), 1e-6, "mean");
    return world.Barrier();
  }));
}

TEST(SyncBatchNormHalfTest, CountsInFloat) {
  ExpectOk(OnTwo([](Communicator& world) {
    SyncBatchNorm norm = NewNorm(world);
    SyncBatchNorm same = NewNorm(world);
    const at::Tensor x =
        (Values("x", 2, 2) - 40).to(TestDevice(), at::kBFloat16);
    const at::Tensor y = norm->forward(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    ExpectNear(y, same->forward(x.to(at::kFloat)), 1.0 / 128, "output");
    y.sum().backward();
    EXPECT_EQ(norm->weight.grad().scalar_type(), at::kFloat);
    return absl::OkStatus();
  }));
}

// What all ranks say alike.
std::vector<std::string> SaidOnTwo(
    const std::function<void(SyncBatchNorm&, int rank)>& work) {
  std::vector<std::string> said(2);
  ExpectOk(OnTwo([&](Communicator& world) {
    SyncBatchNorm norm = NewNorm(world);
    const absl::Status status = CatchTorch([&] { work(norm, world.rank()); });
    said[static_cast<size_t>(world.rank())] = std::string(status.message());
    return absl::OkStatus();
  }));
  return said;
}

TEST(SyncBatchNormErrorTest, NamesWhatItCannotTake) {
  const auto forward = [](std::vector<int64_t> sizes) {
    return [sizes](SyncBatchNorm& norm, int) {
      norm->forward(at::ones(sizes, TestDevice()));
    };
  };
  // One value a channel has no variance; one on each rank has.
  EXPECT_THAT(SaidOnTwo([](auto& norm, int rank) {
                norm->forward(at::ones({rank, kChannels}, TestDevice()));
              }),
              Each(HasSubstr("more than 1 value per channel")));
  EXPECT_THAT(SaidOnTwo(forward({1, kChannels})), Each(""));
  EXPECT_THAT(SaidOnTwo(forward({4, kChannels + 1})),
              Each(HasSubstr("[4, 4]")));
  EXPECT_THAT(SaidOnTwo(forward({4})), Each(HasSubstr("[n, channels, ...]")));
  EXPECT_THAT(SaidOnTwo([](auto& norm, int) {
                const at::Tensor x =
                    at::randn({4, kChannels}, TestDevice()).requires_grad_();
                norm->forward(x).square().sum().backward({}, true, true);
              }),
              Each(HasSubstr("create_graph")));
}

}  // namespace
}  // namespace tandem::sync_batch_norm_test
