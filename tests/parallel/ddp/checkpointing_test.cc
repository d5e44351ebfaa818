// Activation checkpointing under DistributedDataParallel: PyTorch's cases
// (test_c10d_common.py, test_ddp_checkpointing_*), and several losses (pytorch
// #121594, #109191). Gradients are the mean of those of unwrapped models.

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "parallel/activation_checkpointing/checkpoint.h"
#include "parallel/ddp/reducer.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::checkpointing_test {
namespace {

CheckpointOptions Reentrant(bool on) {
  CheckpointOptions options;
  options.use_reentrant = on;
  return options;
}

// PyTorch's modules: l2 is checkpointed once or twice; or l1 and l2 in turn,
// one a forward; both are in one piece where somebody checkpoints all of it.
enum class Kind { kOnce, kTwice, kInTurn, kPlain };

struct Layer20 : torch::nn::Module {
  explicit Layer20(const at::Tensor& its_weight = at::empty({20, 20}))
      : weight(register_parameter("weight", its_weight)),
        bias(register_parameter("bias", at::empty({20}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return at::linear(x, weight, bias);
  }
  at::Tensor weight, bias;
};

template <Kind kind, bool shares_weight = false>
struct Layers : torch::nn::Module {
  Layers()
      : l1(register_module("l1", std::make_shared<Layer20>())),
        l2(register_module("l2", shares_weight
                                     ? std::make_shared<Layer20>(l1->weight)
                                     : std::make_shared<Layer20>())) {}
  at::Tensor forward(const at::Tensor& x, bool use_reentrant) {
    const CheckpointOptions options = Reentrant(use_reentrant);
    if (kind == Kind::kInTurn) {
      return Checkpoint(options, count++ % 2 == 0 ? l2 : l1, x);
    }
    const at::Tensor y = l1->forward(x);
    if (kind == Kind::kPlain) return l2->forward(y);
    const at::Tensor once = Checkpoint(options, l2, y);
    return kind == Kind::kOnce ? once : Checkpoint(options, l2, once);
  }
  std::shared_ptr<Layer20> l1, l2;
  int count = 0;
};

// Kind::kOnce with a layer that is never used.
struct WithUnused : torch::nn::Module {
  WithUnused()
      : layers(
            register_module("layers", std::make_shared<Layers<Kind::kOnce>>())),
        unused(register_module("unused", torch::nn::Linear(2, 2))) {}
  at::Tensor forward(const at::Tensor& x, bool use_reentrant) {
    return layers->forward(x, use_reentrant);
  }
  std::shared_ptr<Layers<Kind::kOnce>> layers;
  torch::nn::Linear unused;
};

struct Data {
  at::Tensor input, target;
};

// [16, 20] of each, this rank's own.
Data DataOf(int step, const Communicator& world) {
  const auto random = [&](const char* what) {
    return at::rand({16, 20}, GeneratorFor(static_cast<uint64_t>(step),
                                           absl::StrCat(what, world.rank())))
        .to(TestDevice());
  };
  return {random("input").requires_grad_(), random("target")};
}

constexpr int kSteps = 5;

DistributedDataParallelOptions Options(bool static_graph, bool find_unused) {
  DistributedDataParallelOptions options;
  options.bucket_cap_mb = 1;
  options.static_graph = static_graph;
  options.find_unused_parameters = find_unused;
  return options;
}
const DistributedDataParallelOptions kPlainly = Options(false, false);
const DistributedDataParallelOptions kFindUnused = Options(false, true);
const DistributedDataParallelOptions kStatic = Options(true, false);
const DistributedDataParallelOptions kStaticAndFindUnused = Options(true, true);

template <typename M>
absl::Status Train(Communicator& world,
                   const DistributedDataParallelOptions& options,
                   bool use_reentrant) {
  TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<M>(world, options));
  for (int step = 0; step < kSteps; ++step) {
    const Data data = DataOf(step, world);
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            twins.ddp->Forward(data.input, use_reentrant));
    TANDEM_RETURN_IF_ERROR(
        twins.ddp->Backward(at::mse_loss(outputs, data.target)));
    at::mse_loss(twins.alone->forward(data.input, use_reentrant), data.target)
        .backward();
    TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
  }
  return absl::OkStatus();
}

using AllOptions = std::vector<DistributedDataParallelOptions>;
using Training = std::function<absl::Status(
    Communicator& world, const DistributedDataParallelOptions& options,
    bool use_reentrant)>;

class DdpCheckpointing : public DdpTest {
 protected:
  // On two ranks, with each of the options and ways of checkpointing.
  void Trains(const Training& training, const AllOptions& all,
              const std::vector<bool>& reentrant = {false, true}) {
    for (const bool use_reentrant : reentrant) {
      for (const auto& options : all) {
        OnRanks(2, [&](Communicator& world) {
          return training(world, options, use_reentrant);
        });
      }
    }
  }
};

TEST_P(DdpCheckpointing, ALayerOnce) {
  Trains(Train<Layers<Kind::kOnce>>, {kPlainly, kStatic, kStaticAndFindUnused});
}

// PyTorch fails with re-entry and without a static graph: it marks ready what
// the inner graph alone uses.
TEST_P(DdpCheckpointing, ALayerOnceAndUnusedParameters) {
  Trains(Train<Layers<Kind::kOnce>>, {kFindUnused, kStaticAndFindUnused});
  Trains(Train<WithUnused>, {kFindUnused, kStaticAndFindUnused});
}

TEST_P(DdpCheckpointing, ALayerTwice) {
  Trains(Train<Layers<Kind::kTwice>>, {kPlainly, kFindUnused, kStatic},
         {false});
}

TEST_P(DdpCheckpointing, ALayerTwiceWithReentryNeedsAStaticGraph) {
  Trains(Train<Layers<Kind::kTwice>>, {kStatic}, {true});
  for (const auto& options : AllOptions{kPlainly, kFindUnused}) {
    OnRanks(2, [&](Communicator& world) -> absl::Status {
      const absl::Status status =
          Train<Layers<Kind::kTwice>>(world, options, true);
      EXPECT_THAT(status,
                  InvalidArgument("ready twice", "l2.", "static_graph"));
      return absl::OkStatus();
    });
  }
}

TEST_P(DdpCheckpointing, AnotherLayerEachTime) {
  Trains(Train<Layers<Kind::kInTurn>>, {kFindUnused});
  Trains(Train<Layers<Kind::kInTurn, true>>, {kFindUnused});
}

TEST_P(DdpCheckpointing, ALayerTwiceAndSharedWeights) {
  Trains(Train<Layers<Kind::kTwice, true>>, {kPlainly, kFindUnused, kStatic},
         {false});
  Trains(Train<Layers<Kind::kTwice, true>>, {kStatic}, {true});
}

// Around the wrapped model as a whole, whose forward then runs in backward.
// PyTorch fails without re-entry where the graph is static (#70865).
absl::Status TrainAround(Communicator& world,
                         const DistributedDataParallelOptions& options,
                         bool use_reentrant) {
  using Model = Layers<Kind::kPlain, true>;
  TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Model>(world, options));
  for (int step = 0; step < kSteps; ++step) {
    const Data data = DataOf(step, world);
    const at::Tensor outputs = Checkpoint(
        Reentrant(use_reentrant),
        [&](const at::Tensor& x) { return *twins.ddp->Forward(x, false); },
        data.input);
    TANDEM_RETURN_IF_ERROR(
        twins.ddp->Backward(at::mse_loss(outputs, data.target)));
    at::mse_loss(twins.alone->forward(data.input, false), data.target)
        .backward();
    TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
  }
  EXPECT_EQ(twins.ddp->reducer().steps(), kSteps);
  return absl::OkStatus();
}

TEST_P(DdpCheckpointing, AroundTheWrappedModelWithSharedWeights) {
  Trains(TrainAround, {kPlainly, kStatic});
}

// A loss of each task, from a forward of its own (pytorch #121594, where
// replicas go apart without a word). `at_once`: one backward of their sum.
template <bool at_once>
absl::Status TrainOnTwoTasks(Communicator& world,
                             const DistributedDataParallelOptions& options,
                             bool use_reentrant) {
  TANDEM_ASSIGN_OR_RETURN(auto twins,
                          MakeTwins<Layers<Kind::kOnce>>(world, options));
  for (int step = 0; step < kSteps; ++step) {
    std::vector<at::Tensor> losses;
    for (int task : {0, 1}) {
      const Data data = DataOf(10 * step + task, world);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                              twins.ddp->Forward(data.input, use_reentrant));
      losses.push_back(at::mse_loss(outputs, data.target) * (1 + task));
      (at::mse_loss(twins.alone->forward(data.input, use_reentrant),
                    data.target) *
       (1 + task))
          .backward();
      if (!at_once) TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(losses.back()));
    }
    if (at_once) {
      TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(losses[0] + losses[1]));
    }
    TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
  }
  return absl::OkStatus();
}

TEST_P(DdpCheckpointing, SeveralTasksInOneBackward) {
  Trains(TrainOnTwoTasks<true>, {kPlainly, kFindUnused, kStatic}, {false});
  Trains(TrainOnTwoTasks<true>, {kStatic}, {true});
  // Never silently wrong.
  OnRanks(2, [](Communicator& world) -> absl::Status {
    EXPECT_THAT(TrainOnTwoTasks<true>(world, kPlainly, true),
                Says("ready twice"));
    return absl::OkStatus();
  });
}

TEST_P(DdpCheckpointing, SeveralTasksOneBackwardAfterTheOther) {
  Trains(TrainOnTwoTasks<false>, {kPlainly, kFindUnused, kStatic});
}

// Losses of one forward, through a graph that is kept.
absl::Status TrainOnTwoLosses(Communicator& world,
                              const DistributedDataParallelOptions& options,
                              bool use_reentrant) {
  TANDEM_ASSIGN_OR_RETURN(auto twins,
                          MakeTwins<Layers<Kind::kOnce>>(world, options));
  const auto both =
      [](const at::Tensor& y, const Data& data,
         const std::function<absl::Status(const at::Tensor&, bool)>& backward) {
        TANDEM_RETURN_IF_ERROR(backward(at::mse_loss(y, data.target), true));
        return backward(y.square().mean(), false);
      };
  for (int step = 0; step < kSteps; ++step) {
    const Data data = DataOf(step, world);
    const auto backward = [](const at::Tensor& loss, bool keep) {
      return CatchTorch([&] { loss.backward({}, keep); });
    };
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                            twins.ddp->Forward(data.input, use_reentrant));
    TANDEM_RETURN_IF_ERROR(both(y, data, backward));
    TANDEM_RETURN_IF_ERROR(
        both(twins.alone->forward(data.input, use_reentrant), data, backward));
    TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
  }
  return absl::OkStatus();
}

TEST_P(DdpCheckpointing, SeveralLossesOfOneForward) {
  Trains(TrainOnTwoLosses, {kPlainly, kFindUnused, kStatic});
}

// Forwards outside of no_sync, backwards within, but for the last (pytorch
// #109191).
absl::Status TrainAccumulating(Communicator& world,
                               const DistributedDataParallelOptions& options,
                               bool use_reentrant) {
  TANDEM_ASSIGN_OR_RETURN(auto twins,
                          MakeTwins<Layers<Kind::kOnce>>(world, options));
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < 3; ++i) {
      const Data data = DataOf(10 * step + i, world);
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                              twins.ddp->Forward(data.input, use_reentrant));
      std::optional<NoSyncGuard> no_sync;
      if (i < 2) no_sync.emplace(twins.ddp->no_sync());
      TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(at::mse_loss(y, data.target)));
      at::mse_loss(twins.alone->forward(data.input, use_reentrant), data.target)
          .backward();
    }
    TANDEM_RETURN_IF_ERROR(ExpectMeanAndZero(twins, world));
  }
  return absl::OkStatus();
}

TEST_P(DdpCheckpointing, AccumulationWithoutSynchronisation) {
  Trains(TrainAccumulating, {kPlainly});
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpCheckpointing);

}  // namespace
}  // namespace tandem::checkpointing_test
