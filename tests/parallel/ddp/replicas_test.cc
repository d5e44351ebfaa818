// The two things that data parallelism promises: replicas hold the same bits
// after every step, and their gradients are those of one process that has the
// whole batch.

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <torch/nn/utils/convert_parameters.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gtest/gtest.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/parallel/ddp/parity_cases.h"
#include "tests/parallel/ddp/parity_mlp.h"
#include "tests/parallel/ddp/parity_tolerance.h"

namespace tandem::replicas_test {
namespace {

using Ddp = DistributedDataParallel<std::shared_ptr<ParityMlp>>;

class DdpReplicas : public DeviceTypesAnd<std::tuple<int, std::string>> {
 protected:
  void OnRanks(const std::function<absl::Status(Communicator&)>& body) {
    const auto [ranks, backend] = value();
    CommunicatorOptions options;
    options.backend = backend;
    ExpectOk(RunThreadRanks(ranks, body, options));
  }
};

absl::Status ExpectSameOnAllRanks(const std::string& mine,
                                  const std::string& when,
                                  Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(mine));
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(all[rank], all[0]) << "rank " << rank << " differs " << when;
  }
  return absl::OkStatus();
}

// Parameters, gradients and optimizer state.
std::string Bits(const ParityMlp& model, const Optimizer& optimizer) {
  NamedTensors tensors = optimizer.State();
  tensors.emplace_back("parameters", FlattenParameters(model));
  tensors.emplace_back("gradients", FlattenGradients(model));
  return WeightsSha256(tensors);
}

absl::Status Backward(Ddp& ddp, int step, int rank, int microbatch,
                      bool use_branch) {
  const ParityBatch batch = MakeParityBatch(step, rank, microbatch);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                          ddp.Forward(batch.inputs, use_branch, 1));
  return ddp.Backward(ParityLoss(outputs, batch));
}

// Ranks start from different values; a part of the network is used on some
// ranks at some steps; gradients accumulate; buckets are small, so that they
// are rebuilt.
TEST_P(DdpReplicas, HoldTheSameBitsAfterEveryStep) {
  OptimizerOptions sgd = SgdOptions{0.9, 0, 0.01, false};
  OptimizerOptions adamw = AdamWOptions{};
  for (const OptimizerOptions& choice : {sgd, adamw}) {
    for (bool find_unused : {true, false}) {
      OnRanks([&](Communicator& world) -> absl::Status {
        auto model = std::make_shared<ParityMlp>(absl::StrCat(world.rank()));
        DistributedDataParallelOptions options;
        options.find_unused_parameters = find_unused;
        options.bucket_cap_mb = 0.0003;
        TANDEM_ASSIGN_OR_RETURN(
            auto ddp, MakeDistributedDataParallel(model, world, options));
        TANDEM_ASSIGN_OR_RETURN(auto optimizer,
                                MakeOptimizer(choice, ddp->flat_buffers()));
        TANDEM_RETURN_IF_ERROR(ExpectSameOnAllRanks(Bits(*model, *optimizer),
                                                    "at the start", world));
        for (int step = 0; step < 5; ++step) {
          const bool use_branch =
              !find_unused ||
              (step % 3 == 1 && world.rank() + 1 == world.size());
          {
            const auto guard = ddp->no_sync();
            TANDEM_RETURN_IF_ERROR(
                Backward(*ddp, step, world.rank(), 1, !find_unused));
          }
          TANDEM_RETURN_IF_ERROR(
              Backward(*ddp, step, world.rank(), 0, use_branch));
          ClipGradientNorm(ddp->flat_buffers(), 0.5);
          optimizer->Step(0.1);
          TANDEM_RETURN_IF_ERROR(
              ExpectSameOnAllRanks(Bits(*model, *optimizer),
                                   absl::StrCat("after step ", step), world));
          ddp->ZeroGrad();
        }
        return absl::OkStatus();
      });
    }
  }
}

// The gradient of one process that has all ranks' samples.
at::Tensor WholeBatchGradient(const at::Tensor& parameters, int step,
                              int ranks) {
  ParityMlp model;
  torch::nn::utils::vector_to_parameters(parameters.to(TestDevice()),
                                         model.parameters());
  ParityBatch whole;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets;
  for (int rank = 0; rank < ranks; ++rank) {
    const ParityBatch batch = MakeParityBatch(step, rank, 0);
    inputs.push_back(batch.inputs);
    targets.push_back(batch.targets);
  }
  whole.inputs = at::cat(inputs);
  whole.targets = at::cat(targets);
  ParityLoss(model.forward(whole.inputs), whole).backward();
  return FlattenGradients(model);
}

// The order of additions differs.
TEST_P(DdpReplicas, GradientsAreThoseOfTheWholeBatch) {
  OnRanks([](Communicator& world) -> absl::Status {
    at::set_num_threads(1);
    auto model = std::make_shared<ParityMlp>();
    DistributedDataParallelOptions options;
    options.bucket_cap_mb = 0.0003;
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(model, world, options));
    TANDEM_ASSIGN_OR_RETURN(auto optimizer,
                            MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
    for (int step = 0; step < 4; ++step) {
      TANDEM_RETURN_IF_ERROR(Backward(*ddp, step, world.rank(), 0, true));
      const at::Tensor expected =
          WholeBatchGradient(FlattenParameters(*model), step, world.size());
      const at::Tensor errors = FlattenGradients(*model).sub(expected).abs();
      EXPECT_LE(errors.max().item<float>(),
                ToleranceOf(ParityCase("plain"), world.size()).gradients)
          << "step " << step;
      EXPECT_GT(expected.abs().max().item<float>(), 0.01);
      optimizer->Step(0.5);
      ddp->ZeroGrad();
    }
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICE_TYPES_AND(DdpReplicas,
                           testing::Combine(testing::Values(1, 2, 3, 4, 5, 6,
                                                            7),
                                            testing::Values("gloo", "shm")));

}  // namespace
}  // namespace tandem::replicas_test
