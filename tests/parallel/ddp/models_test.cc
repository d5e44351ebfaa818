// Models of many kinds: the cases that PyTorch's own tests of
// DistributedDataParallel go through (README.md, beside this file, says which
// is which).

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
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
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/parallel/ddp/fixture.h"
#include "tests/parallel/ddp/parity_cases.h"
#include "tests/parallel/ddp/parity_check.h"

namespace tandem::models_test {
namespace {

class DdpModels : public DdpTest {};

// float64, then float32.
struct TwoDtypes : torch::nn::Module {
  TwoDtypes()
      : wide(register_module("wide", torch::nn::Linear(4, 5))),
        narrow(register_module("narrow", torch::nn::Linear(5, 3))) {
    wide->to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool use_narrow) {
    const at::Tensor y = wide(x.to(at::kDouble)).to(at::kFloat);
    return use_narrow ? narrow(y) : y;
  }
  torch::nn::Linear wide, narrow;
};

TEST_P(DdpModels, SeveralDtypesAndUnusedParametersUnderAdam) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options;
    options.find_unused_parameters = true;
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<TwoDtypes>(world, options));
    EXPECT_EQ(twins.ddp->flat_buffers().size(), 2u);
    TANDEM_ASSIGN_OR_RETURN(
        auto optimizer,
        MakeOptimizer(AdamOptions{}, twins.ddp->flat_buffers()));
    for (int step = 0; step < 3; ++step) {
      // Unused at the first step alone.
      TANDEM_RETURN_IF_ERROR(
          BackwardBoth(twins, ExampleInput(step, world), step > 0));
      TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
      optimizer->Step(0.1);
      at::NoGradGuard no_grad;
      const auto values = twins.module->named_parameters();
      for (auto& parameter : twins.alone->named_parameters()) {
        parameter.value().copy_(values[parameter.key()]);
      }
      ZeroBoth(twins);
    }
    return absl::OkStatus();
  });
}

struct NoOutputs : torch::nn::Module {
  NoOutputs()
      : fc1(register_module("fc1", torch::nn::Linear(4, 4))),
        fc2(register_module("fc2", torch::nn::Linear(4, 0))) {}
  at::Tensor forward(const at::Tensor& x) { return fc2(fc1(x)); }
  torch::nn::Linear fc1, fc2;
};

TEST_P(DdpModels, LayerWithoutOutputs) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<NoOutputs>(world));
    for (int step = 0; step < 3; ++step) {
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
    }
    return ExpectMeanGradients(twins, world);
  });
}

struct Bag : torch::nn::Module {
  Bag()
      : embedding(register_module(
            "embedding",
            torch::nn::EmbeddingBag(
                torch::nn::EmbeddingBagOptions(10, 10).sparse(true)))) {}
  at::Tensor forward(const at::Tensor& tokens) {
    return embedding(tokens).softmax(1).square();
  }
  torch::nn::EmbeddingBag embedding;
};

// The gradient that a sparse layer gives is averaged as a dense one.
TEST_P(DdpModels, SparseGradientsBecomeDense) {
  if (TestDevice().is_privateuseone()) GTEST_SKIP() << "dense tensors alone";
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Bag>(world));
    twins.alone->embedding->options.sparse(false);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor tokens =
          at::arange(6, at::device(TestDevice()).dtype(at::kLong))
              .mul(3)
              .add(world.rank() + step)
              .remainder(10);
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, tokens.view({3, 2})));
      TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
    }
    return absl::OkStatus();
  });
}

// Layouts and dtypes differ from layer to layer.
struct Convolutions : torch::nn::Module {
  Convolutions() {
    const int64_t widths[] = {3, 6, 8, 4, 5};
    for (int i = 0; i < 4; ++i) {
      convs.push_back(
          register_module("conv" + std::to_string(i),
                          torch::nn::Conv2d(torch::nn::Conv2dOptions(
                              widths[i], widths[i + 1], 2))));
    }
    convs[2]->to(at::kDouble);
    for (int i : {0, 2}) ToChannelsLast(convs[i]->weight);
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& conv : convs) x = conv(x.to(conv->weight.scalar_type()));
    return x;
  }
  static void ToChannelsLast(at::Tensor& weight) {
    weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  std::vector<torch::nn::Conv2d> convs;
};

TEST_P(DdpModels, LayoutsStayAndGradientsHaveThem) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Convolutions>(world));
    for (int step = 0; step < 3; ++step) {
      at::Tensor x = at::full({2, 3, 8, 8}, 0.5 + 0.25 * world.rank() + step,
                              TestDevice());
      if (step == 1) x = x.contiguous(at::MemoryFormat::ChannelsLast);
      TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, x));
      TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
      for (int i = 0; i < 4; ++i) {
        const at::Tensor& weight = twins.module->convs[i]->weight;
        EXPECT_EQ(weight.is_contiguous(at::MemoryFormat::ChannelsLast),
                  i % 2 == 0);
        EXPECT_EQ(weight.grad().strides(), weight.strides());
      }
      ZeroBoth(twins);
    }
    return absl::OkStatus();
  });
}

// A parameter without gradient, of integers, as a module may have.
struct Frozen : torch::nn::Module {
  Frozen()
      : fc(register_module("fc", torch::nn::Linear(4, 4))),
        whole(register_parameter("whole", at::full({2}, 2, at::kLong), false)) {
    fc->bias.requires_grad_(false);
  }
  at::Tensor forward(const at::Tensor& x) { return fc(x).mul(whole[0]); }
  torch::nn::Linear fc;
  at::Tensor whole;
};

TEST_P(DdpModels, FrozenParametersAreBroadcastAndLeftOut) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    auto module = NewModule<Frozen>();
    module->fc->bias.fill_(world.rank() + 1);
    module->whole.fill_(world.rank() + 5);
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(module, world));
    EXPECT_EQ(module->fc->bias[0].item<double>(), 1);
    EXPECT_EQ(module->whole[0].item<int64_t>(), 5);
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                            ddp->Forward(ExampleInput(0, world)));
    TANDEM_RETURN_IF_ERROR(ddp->Backward(output.sum()));
    EXPECT_TRUE(module->fc->weight.grad().defined());
    EXPECT_FALSE(module->fc->bias.grad().defined());
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(DdpModels);

// The two things that data parallelism promises: replicas hold the same bits
// after every step, and their gradients are those of one process that has the
// whole batch.

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
}  // namespace tandem::models_test
