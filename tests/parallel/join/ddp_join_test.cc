// DistributedDataParallel with uneven inputs: the tests of PyTorch's
// distributed_test.py that concern join().

#include <ATen/Functions.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/reducer.h"
#include "parallel/join/join.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"

namespace tandem::ddp_join_test {
namespace {

using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;
using torch::nn::utils::parameters_to_vector;

class DdpJoinTest : public DeviceTypesAnd<int> {
 protected:
  static int ranks() { return value(); }
  static void OnRanks(const std::function<absl::Status(Communicator&)>& body) {
    ExpectOk(RunDeviceRanks(ranks(), body));
  }
};

// test_ddp_grad_div_uneven_inputs: rank 0 has 3 batches, the others 5.
TEST_P(DdpJoinTest, GradientsAreDividedByTheInitialOrThePresentRanks) {
  for (const bool by_initial : {true, false}) {
    OnRanks([&](Communicator& world) -> absl::Status {
      const auto net = std::make_shared<torch::nn::LinearImpl>(
          LinearOptions(5, 5).bias(false));
      net->to(TestDevice());
      TANDEM_ASSIGN_OR_RETURN(auto ddp,
                              MakeDistributedDataParallel(net, world));
      JoinOptions options;
      options.divide_by_initial_world_size = by_initial;
      TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}, options));
      const at::Tensor x = at::full({1, 5}, 50.0).to(TestDevice());
      for (int i = 0; i < (world.rank() == 0 ? 3 : 5); ++i) {
        TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
        ddp->ZeroGrad();
        TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(x));
        TANDEM_RETURN_IF_ERROR(ddp->Backward(y.sum()));
        const double present = world.size() - (i < 3 ? 0 : 1);
        const double expected = by_initial ? 50 * present / world.size() : 50;
        EXPECT_TRUE(at::allclose(net->weight.grad(),
                                 at::full_like(net->weight, expected)))
            << "iteration " << i << ": " << net->weight.grad();
      }
      TANDEM_RETURN_IF_ERROR(join.Finish());
      // Behind it all are there again.
      ddp->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(x));
      TANDEM_RETURN_IF_ERROR(ddp->Backward(y.sum()));
      EXPECT_TRUE(
          at::allclose(net->weight.grad(), at::full_like(net->weight, 50)));
      return absl::OkStatus();
    });
  }
}

// test_ddp_join_model_equivalence: rank r has 2 (r + 1) batches.
TEST_P(DdpJoinTest, TheModelIsThatOfOneProcessWithAllBatches) {
  constexpr double kRate = 0.03;
  const auto make = [] {
    const auto net = std::make_shared<torch::nn::LinearImpl>(10, 10);
    const at::NoGradGuard no_grad;
    for (at::Tensor& each : net->parameters()) {
      each.copy_(at::linspace(-1, 1, each.numel()).view_as(each));
    }
    net->to(TestDevice());
    return net;
  };
  const auto input = [](int rank, int i) {
    return at::full({3, 10}, 0.01 * (rank + 1) * (i + 1)).to(TestDevice());
  };
  const int n = ranks();
  const auto alone = make();
  // A step of the joined ranks is one with the sum of their gradients.
  for (int i = 0; i < 2 * n; ++i) {
    alone->zero_grad();
    for (int rank = i / 2; rank < n; ++rank) {
      alone->forward(input(rank, i)).sum().backward();
    }
    const at::NoGradGuard no_grad;
    for (at::Tensor& each : alone->parameters()) {
      each.sub_(each.grad(), kRate);
    }
  }
  const auto expected = alone->weight.detach().cpu();
  OnRanks([&](Communicator& world) -> absl::Status {
    const auto net = make();
    TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, world));
    TANDEM_ASSIGN_OR_RETURN(const auto sgd,
                            MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
    TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
    for (int i = 0; i < 2 * (world.rank() + 1); ++i) {
      TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
      ddp->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                              ddp->Forward(input(world.rank(), i)));
      TANDEM_RETURN_IF_ERROR(ddp->Backward(y.sum()));
      sgd->Step(kRate * world.size());
    }
    TANDEM_RETURN_IF_ERROR(join.Finish());
    EXPECT_TRUE(at::allclose(net->weight.detach().cpu(), expected, 1e-5, 1e-5));
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICE_TYPES_AND(DdpJoinTest, testing::Values(2, 3, 5));

// One of the models of test_ddp_uneven_inputs.
struct Model {
  std::string name;
  std::function<Sequential()> make;
  std::vector<int64_t> shape;
  DistributedDataParallelOptions options;
  std::function<absl::StatusOr<CommunicationHook>()> hook;
};

// Its second layer is used where it is asked for.
struct MayBeUnused : torch::nn::Module {
  MayBeUnused() {
    first = register_module("first", Linear(LinearOptions(10, 10)));
    second = register_module("second", Linear(LinearOptions(10, 10)));
  }
  at::Tensor forward(const at::Tensor& x, bool uses_second) {
    const at::Tensor y = first->forward(x);
    return uses_second ? second->forward(y) : y;
  }
  Linear first{nullptr}, second{nullptr};
};

std::vector<Model> Models() {
  const auto small = [] {
    return Sequential(Linear(LinearOptions(1, 1).bias(false)));
  };
  const auto wide = [] {
    return Sequential(Linear(LinearOptions(8, 40)),
                      Linear(LinearOptions(40, 4)));
  };
  const auto norm = [] {
    return Sequential(Linear(LinearOptions(2, 40)), torch::nn::BatchNorm1d(40),
                      Linear(LinearOptions(40, 4)));
  };
  const auto conv = [] {
    return Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 20, 5)),
                      torch::nn::Conv2d(torch::nn::Conv2dOptions(20, 10, 3)));
  };
  DistributedDataParallelOptions buckets;
  buckets.bucket_cap_mb = 1.0 / 1024;
  DistributedDataParallelOptions still = buckets;
  still.static_graph = true;
  const auto power_sgd = []() -> absl::StatusOr<CommunicationHook> {
    PowerSgdOptions options;
    options.start_power_sgd_iter = 2;
    TANDEM_ASSIGN_OR_RETURN(const PowerSgd state, PowerSgd::Create(options));
    return state.Hook();
  };
  return {
      {"norm", norm, {4, 2}, buckets, nullptr},
      {"conv", conv, {2, 1, 10, 10}, buckets, nullptr},
      {"small", small, {1, 1}, {}, nullptr},
      {"static", wide, {3, 8}, still, nullptr},
      {"hook",
       wide,
       {3, 8},
       buckets,
       []() -> absl::StatusOr<CommunicationHook> { return AllReduceHook(); }},
      {"power_sgd", wide, {3, 8}, buckets, power_sgd},
  };
}

absl::Status ExpectSameModel(const torch::nn::Module& net, Communicator& world,
                             const std::string& what) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& each : net.parameters()) all.push_back(each.detach());
  for (const at::Tensor& each : net.buffers()) all.push_back(each);
  for (const at::Tensor& each : all) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> others,
                            world.AllGather(each.contiguous()));
    for (const at::Tensor& other : others) {
      EXPECT_TRUE(at::equal(other, others.back())) << what;
    }
  }
  return absl::OkStatus();
}

using Numbers = std::vector<int>;

const std::vector<Numbers>& Deals() {
  static const auto* const deals = new std::vector<Numbers>{
      {0, 2}, {5, 7}, {0, 5, 3}, {3, 0, 5}, {5, 0, 0}, {2, 2, 2}, {0, 0, 0}};
  return *deals;
}

absl::Status TrainUnevenly(const Model& model, const Numbers& batches,
                           int sync_interval, Communicator& world) {
  torch::manual_seed(world.rank());
  Sequential net = model.make();
  TANDEM_ASSIGN_OR_RETURN(
      auto ddp, MakeDistributedDataParallel(net, world, model.options));
  if (model.hook) {
    TANDEM_ASSIGN_OR_RETURN(auto hook, model.hook());
    TANDEM_RETURN_IF_ERROR(ddp->register_comm_hook(std::move(hook)));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto sgd,
                          MakeOptimizer(SgdOptions{0.9}, ddp->flat_buffers()));
  TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
  for (int i = 0; i < batches[static_cast<size_t>(world.rank())]; ++i) {
    TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
    const bool synchronises = i % sync_interval == 0;
    std::optional<NoSyncGuard> guard;
    if (!synchronises) guard.emplace(ddp->no_sync());
    const at::Tensor x = at::rand(model.shape);
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor y, ddp->Forward(x));
    TANDEM_RETURN_IF_ERROR(ddp->Backward(y.sum()));
    if (!synchronises) continue;
    sgd->Step(0.01);
    ddp->ZeroGrad();
  }
  const at::Tensor before = parameters_to_vector(net->parameters()).clone();
  TANDEM_RETURN_IF_ERROR(join.Finish());
  // The last rank's model, of several the highest one's, is everybody's.
  const auto last = std::max_element(batches.rbegin(), batches.rend());
  if (world.rank() == batches.rend() - last - 1) {
    EXPECT_TRUE(at::equal(parameters_to_vector(net->parameters()), before))
        << model.name;
  }
  return ExpectSameModel(*net, world, model.name);
}

// test_ddp_uneven_inputs.
TEST(UnevenInputsTest, EveryModelEndsAlike) {
  for (const Model& model : Models()) {
    for (const Numbers& batches : Deals()) {
      for (const int sync_interval : {1, 3}) {
        const bool still = model.options.static_graph;
        if (still && sync_interval > 1) continue;
        const absl::Status status = RunDeviceRanks(
            static_cast<int>(batches.size()), [&](Communicator& world) {
              return TrainUnevenly(model, batches, sync_interval, world);
            });
        EXPECT_TRUE(status.ok()) << model.name << ": " << status;
      }
    }
  }
}

// A second Join on the same wrapper: the next epoch.
TEST(UnevenInputsTest, OneJoinAfterAnother) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    const auto net = std::make_shared<MayBeUnused>();
    DistributedDataParallelOptions options;
    options.find_unused_parameters = true;
    options.bucket_cap_mb = 1.0 / 4096;
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(net, world, options));
    TANDEM_ASSIGN_OR_RETURN(const auto sgd,
                            MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
    for (int epoch = 0; epoch < 3; ++epoch) {
      const int batches = (world.rank() + epoch) % 3 * 2;
      TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
      for (int i = 0; i < batches; ++i) {
        TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
        ddp->ZeroGrad();
        // In turns: by ranks that end early, and that do not.
        const bool second = (world.rank() + i) % 2 == 0;
        TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                                ddp->Forward(at::rand({2, 10}), second));
        TANDEM_RETURN_IF_ERROR(ddp->Backward(y.sum()));
        sgd->Step(0.01);
      }
      TANDEM_RETURN_IF_ERROR(join.Finish());
      TANDEM_RETURN_IF_ERROR(ExpectSameModel(*net, world, "unused"));
    }
    return absl::OkStatus();
  }));
}

// The optimizer's state is the last rank's, too: all go on from one.
TEST(UnevenInputsTest, TheNextEpochGoesOnAlike) {
  for (const OptimizerOptions& options :
       {OptimizerOptions(SgdOptions{0.9}), OptimizerOptions(AdamWOptions())}) {
    ExpectOk(RunDeviceRanks(3, [&](Communicator& world) -> absl::Status {
      Sequential net(Linear(LinearOptions(8, 12)),
                     Linear(LinearOptions(12, 4)));
      TANDEM_ASSIGN_OR_RETURN(auto ddp,
                              MakeDistributedDataParallel(net, world));
      TANDEM_ASSIGN_OR_RETURN(const auto optimizer,
                              MakeOptimizer(options, ddp->flat_buffers()));
      for (const int batches : {world.rank() + 1, 2}) {
        TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
        for (int i = 0; i < batches; ++i) {
          TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
          ddp->ZeroGrad();
          TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                                  ddp->Forward(at::rand({3, 8})));
          TANDEM_RETURN_IF_ERROR(ddp->Backward(y.square().sum()));
          optimizer->Step(0.01);
        }
        TANDEM_RETURN_IF_ERROR(join.Finish());
      }
      // Finish makes values alike: what steps make of them tells.
      ddp->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                              ddp->Forward(at::rand({3, 8})));
      TANDEM_RETURN_IF_ERROR(ddp->Backward(y.square().sum()));
      optimizer->Step(0.01);
      return ExpectSameModel(*net, world, optimizer->name());
    }));
  }
}

// test_ddp_uneven_inputs_stop_iteration_sync_bn: with layers of which Join
// knows nothing.
TEST(UnevenInputsTest, SyncBatchNormWithEarlyTermination) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    Sequential net(Linear(LinearOptions(2, 4)), torch::nn::BatchNorm1d(4));
    TANDEM_ASSIGN_OR_RETURN(const auto group,
                            world.Subgroup({0, 1, 2}, "statistics"));
    TANDEM_RETURN_IF_ERROR(ConvertSyncBatchNorm(*net, *group).status());
    TANDEM_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, world));
    JoinOptions options;
    options.throw_on_early_termination = true;
    absl::Status ended;
    TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}, options));
    for (int i = 0; i < 2 + world.rank() && ended.ok(); ++i) {
      ended = join.NotifyBatch();
      if (!ended.ok()) break;
      ddp->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                              ddp->Forward(at::rand({1, 2})));
      TANDEM_RETURN_IF_ERROR(ddp->Backward(y.square().sum()));
    }
    if (ended.ok()) ended = join.Finish();
    EXPECT_TRUE(IsEarlyTermination(ended)) << ended;
    EXPECT_EQ(join.iterations(), 2);
    EXPECT_EQ(ddp->reducer().steps(), 2);
    return world.Barrier();
  }));
}

}  // namespace
}  // namespace tandem::ddp_join_test
