// SyncBatchNorm in functions that are computed again in backward: the same
// bits, and no collective a second time, which other ranks would have to meet.

#include <ATen/Functions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/activation_checkpointing/checkpoint.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"

namespace tandem::computed_again_test {
namespace {

constexpr int64_t kChannels = 3;
constexpr int kRanks = 3;

using Net = torch::nn::Sequential;
using Tensors = std::vector<at::Tensor>;

Net MakeNet(Communicator& group) {
  const torch::nn::BatchNormOptions options(kChannels);
  Net net(SyncBatchNorm(options, group), torch::nn::Tanh(),
          SyncBatchNorm(options, group));
  net->to(TestDevice());
  return net;
}

enum class Way { kPlain, kAsOne, kInTurn, kNested };

at::Tensor Forward(Net& first, Net& second, const at::Tensor& x, Way way,
                   const CheckpointOptions& options) {
  auto both = [first, second](const at::Tensor& input) mutable {
    return second->forward(first->forward(input));
  };
  switch (way) {
    case Way::kPlain:
      return both(x);
    case Way::kAsOne:
      return Checkpoint(options, both, x);
    case Way::kInTurn:
      return Checkpoint(options, second, Checkpoint(options, first, x));
    case Way::kNested:
      return Checkpoint(
          options,
          [first, second, options](const at::Tensor& input) mutable {
            return second->forward(Checkpoint(options, first, input));
          },
          x);
  }
  return at::Tensor();
}

// Gradients and buffers after a step; rank r has r samples.
absl::StatusOr<Tensors> Step(Communicator& world, Way way,
                             const CheckpointOptions& options) {
  return CatchTorchOr([&] {
    Net first = MakeNet(world), second = MakeNet(world);
    const at::Tensor x = at::randn({world.rank(), kChannels, 2},
                                   GeneratorFor(3, world.rank() ? "b" : "a"))
                             .to(TestDevice())
                             .requires_grad_();
    Forward(first, second, x, way, options).square().sum().backward();
    Tensors all = {x.grad()};
    for (const Net& net : {first, second}) {
      for (const at::Tensor& each : net->parameters()) {
        all.push_back(each.grad());
      }
      for (const at::Tensor& each : net->buffers()) all.push_back(each);
    }
    return all;
  });
}

TEST(ComputedAgainTest, HasTheBitsOfTheFirstPass) {
  for (const bool use_reentrant : {false, true}) {
    CheckpointOptions options;
    options.use_reentrant = use_reentrant;
    for (const Way way : {Way::kAsOne, Way::kInTurn, Way::kNested}) {
      SCOPED_TRACE(static_cast<int>(way));
      ExpectOk(RunDeviceRanks(kRanks, [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(const Tensors plain,
                                Step(world, Way::kPlain, options));
        TANDEM_ASSIGN_OR_RETURN(const Tensors found, Step(world, way, options));
        EXPECT_EQ(found.size(), plain.size());
        for (size_t i = 0; i < plain.size(); ++i) {
          EXPECT_TRUE(at::equal(found[i], plain[i])) << i;
        }
        return absl::OkStatus();
      }));
    }
  }
}

}  // namespace
}  // namespace tandem::computed_again_test
