// Parameter groups: optimizers over part of the flat buffers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/testing/statuses.h"
#include "parallel/ddp/logging.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/update_options.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::optimizer_groups_test {
namespace {

// Registered in another order than used: buckets are rebuilt in a third.
struct Net : torch::nn::Module {
  Net()
      : out(register_module("out", torch::nn::Linear(6, 3))),
        norm(register_module(
            "norm", torch::nn::LayerNorm(
                        torch::nn::LayerNormOptions(std::vector<int64_t>{6})))),
        in(register_module("in", torch::nn::Linear(4, 6))) {}
  at::Tensor forward(const at::Tensor& x) {
    return out(norm(in(x)).tanh()).square();
  }
  torch::nn::Linear out;
  torch::nn::LayerNorm norm;
  torch::nn::Linear in;
};

// Biases and norms: 1.
int64_t GroupOf(const std::string& name) {
  return absl::EndsWith(name, "bias") || absl::StartsWith(name, "norm.");
}

DistributedDataParallelOptions InGroups() {
  DistributedDataParallelOptions options;
  options.optimizer_group = GroupOf;
  options.bucket_cap_mb = 1e-6;
  return options;
}

struct Group {
  OptimizerOptions options;
  double learning_rate;
};

template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> PyTorchs(torch::nn::Module& module,
                                                  const Options& first,
                                                  const Options& second) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (int group : {0, 1}) {
    std::vector<at::Tensor> parameters;
    for (const auto& each : module.named_parameters()) {
      if (GroupOf(each.key()) == group) parameters.push_back(each.value());
    }
    groups.emplace_back(parameters,
                        std::make_unique<Options>(group == 0 ? first : second));
  }
  // What a group leaves at its default, it takes from these options.
  return std::make_unique<Optimizer>(groups, Options(first.lr()));
}

// torch::optim with two param_groups, on the mean of the ranks' gradients.
absl::Status StepAlone(Net& alone, torch::optim::Optimizer& optimizer,
                       Communicator& world) {
  for (const at::Tensor& parameter : alone.parameters()) {
    parameter.mutable_grad().div_(world.size());
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(parameter.grad()));
  }
  optimizer.step();
  return absl::OkStatus();
}

absl::Status ExpectSameTraining(
    const std::vector<Group>& groups,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(Net&)>& make,
    Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Net>(world, InGroups()));
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (size_t g = 0; g < groups.size(); ++g) {
    TANDEM_ASSIGN_OR_RETURN(
        optimizers.emplace_back(),
        MakeOptimizer(groups[g].options, twins.ddp->flat_buffers_of(g)));
  }
  const auto theirs = make(*twins.alone);
  for (int step = 0; step < 6; ++step) {
    ZeroBoth(twins);
    TANDEM_RETURN_IF_ERROR(BackwardBoth(twins, ExampleInput(step, world)));
    for (size_t g = 0; g < groups.size(); ++g) {
      optimizers[g]->Step(groups[g].learning_rate);
    }
    TANDEM_RETURN_IF_ERROR(StepAlone(*twins.alone, *theirs, world));
    const auto expected = twins.alone->named_parameters();
    for (const auto& each : twins.module->named_parameters()) {
      EXPECT_TRUE(each->allclose(expected[each.key()], 1e-5, 1e-5))
          << each.key() << " after step " << step;
    }
  }
  EXPECT_TRUE(twins.ddp->logging_data().has_rebuilt_buckets);
  return absl::OkStatus();
}

class OptimizerGroups : public DdpTest {};

TEST_P(OptimizerGroups, StepAsPyTorchsParamGroupsDoWithSgd) {
  OnRanks(2, [](Communicator& world) {
    const auto options = [](double rate, double momentum, double decay) {
      return torch::optim::SGDOptions(rate).momentum(momentum).weight_decay(
          decay);
    };
    return ExpectSameTraining(
        {{SgdOptions{0.9, 0, 0.1}, 0.05}, {SgdOptions{0.5}, 0.02}},
        [&](Net& net) {
          return PyTorchs<torch::optim::SGD>(net, options(0.05, 0.9, 0.1),
                                             options(0.02, 0.5, 0));
        },
        world);
  });
}

TEST_P(OptimizerGroups, StepAsPyTorchsParamGroupsDoWithAdamW) {
  OnRanks(2, [](Communicator& world) {
    const auto options = [](double rate, double decay) {
      return torch::optim::AdamWOptions(rate).weight_decay(decay);
    };
    return ExpectSameTraining(
        {{AdamWOptions{0.9, 0.999, 1e-8, 0.3}, 0.01},
         {AdamWOptions{0.9, 0.999, 1e-8, 0}, 0.003}},
        [&](Net& net) {
          return PyTorchs<torch::optim::AdamW>(net, options(0.01, 0.3),
                                               options(0.003, 0));
        },
        world);
  });
}

TEST_P(OptimizerGroups, BuffersOfAGroupHoldItsParametersAlone) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    DistributedDataParallelOptions options = InGroups();
    options.parameters_to_ignore = {"in.bias"};
    TANDEM_ASSIGN_OR_RETURN(auto twins, MakeTwins<Net>(world, options));
    const auto names = [](const FlatBufferList& buffers) {
      std::set<std::string> set;
      for (const FlatBuffer* buffer : buffers) {
        for (const FlatSlot& slot : buffer->slots()) set.insert(slot.name);
      }
      return set;
    };
    using Names = std::set<std::string>;
    EXPECT_EQ(names(twins.ddp->flat_buffers_of(0)),
              Names({"in.weight", "out.weight"}));
    EXPECT_EQ(names(twins.ddp->flat_buffers_of(1)),
              Names({"in.bias", "norm.bias", "norm.weight", "out.bias"}));
    EXPECT_TRUE(twins.ddp->flat_buffers_of(2).empty());
    EXPECT_EQ(names(twins.ddp->ignored_flat_buffers()), Names({"in.bias"}));
    EXPECT_EQ(names(twins.ddp->averaged_flat_buffers()),
              Names({"in.weight", "norm.bias", "norm.weight", "out.bias",
                     "out.weight"}));
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICES_AND_BACKENDS(OptimizerGroups);

class GroupedOptimizerTest : public DeviceTypeTest {};

// Without ranks: a net whose gradients are its values.
struct Alone {
  Alone() {
    net.to(TestDevice());
    FillModule(net);
    NamedTensors parameters;
    FlatBufferOptions options;
    for (const auto& each : net.named_parameters()) {
      parameters.emplace_back(each.key(), each.value());
      ParameterTraits traits;
      traits.optimizer_group = GroupOf(each.key());
      options.traits.push_back(traits);
    }
    buffers = MakeFlatBuffers(parameters, options);
  }

  void Step(Optimizer& optimizer) {
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    at::Tensor loss;
    for (const at::Tensor& parameter : net.parameters()) {
      const at::Tensor term = parameter.pow(2).sum().mul(0.5);
      loss = loss.defined() ? loss.add(term) : term;
    }
    loss.backward();
    optimizer.Step(0.5);
  }

  Net net;
  FlatBuffers buffers;
};

const std::vector<OptimizerOptions>& Decaying() {
  static const auto* options = new std::vector<OptimizerOptions>{
      SgdOptions{0.9, 0, 0.2}, SgdOptions{0.9}};
  return *options;
}

TEST_P(GroupedOptimizerTest, EachGroupHasItsOwnOptions) {
  Alone alone;
  auto optimizer = MakeGroupedOptimizer(Decaying(), alone.buffers);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const at::Tensor weight = alone.net.in->weight.detach().clone();
  const at::Tensor bias = alone.net.in->bias.detach().clone();
  alone.Step(**optimizer);
  EXPECT_TRUE(alone.net.in->weight.allclose(weight.mul(1 - 0.5 * 1.2)));
  EXPECT_TRUE(alone.net.in->bias.allclose(bias.mul(0.5)));
}

TEST_P(GroupedOptimizerTest, GoesOnFromItsStateWithTheSameBits) {
  Alone whole, second;
  auto first = MakeGroupedOptimizer(Decaying(), whole.buffers);
  auto other = MakeGroupedOptimizer(Decaying(), second.buffers);
  ASSERT_TRUE(first.ok() && other.ok());
  whole.Step(**first);
  ASSERT_EQ((*first)->State().size(), 6u);
  const absl::Status status = (*other)->LoadState((*first)->State());
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < whole.net.parameters().size(); ++i) {
    second.net.parameters()[i].detach().copy_(
        whole.net.parameters()[i].detach());
  }
  whole.Step(**first);
  second.Step(**other);
  for (size_t i = 0; i < whole.net.parameters().size(); ++i) {
    EXPECT_TRUE(second.net.parameters()[i].equal(whole.net.parameters()[i]));
  }
}

TEST_P(GroupedOptimizerTest, WrongStateChangesNothingInAnyGroup) {
  Alone alone;
  auto optimizer = MakeGroupedOptimizer(Decaying(), alone.buffers);
  ASSERT_TRUE(optimizer.ok());
  alone.Step(**optimizer);
  NamedTensors before = (*optimizer)->State();
  for (auto& each : before) each.second = each.second.clone();
  NamedTensors wrong = before;
  for (auto& each : wrong) each.second = each.second.clone().zero_();
  // The last group's: the first would have taken its part.
  for (auto& [name, tensor] : wrong) {
    if (name == "norm.weight.momentum_buffer") tensor = tensor.narrow(0, 0, 3);
  }
  EXPECT_THAT((*optimizer)->LoadState(wrong),
              Says("norm.weight.momentum_buffer: expected"));
  EXPECT_THAT((*optimizer)->LoadState({{"fc9.bias.momentum_buffer", {}}}),
              Says("fc9.bias.momentum_buffer has no place here"));
  const NamedTensors after = (*optimizer)->State();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(after[i].second.equal(before[i].second)) << before[i].first;
  }
}

TEST_P(GroupedOptimizerTest, AGroupWithoutOptionsIsRefused) {
  Alone alone;
  const auto optimizer = MakeGroupedOptimizer({SgdOptions{}}, alone.buffers);
  EXPECT_THAT(
      optimizer.status(),
      InvalidArgument("is in optimizer group 1, but there are options for 1"));
}

TANDEM_ON_DEVICE_TYPES(GroupedOptimizerTest);

TEST(GroupOfAnyTest, IsTheGreatestOfAllNames) {
  const auto group = [](const std::string& name) -> int64_t {
    return name == "head" ? 2 : name == "bias" ? 1 : 0;
  };
  const std::vector<std::string> tied = {"embedding", "head"};
  const std::map<std::string, std::vector<std::string>> names = {
      {"embedding", tied}, {"head", tied}};
  const OptimizerGroup of_any = GroupOfAny(group, names);
  EXPECT_EQ(of_any("embedding"), 2);
  EXPECT_EQ(of_any("head"), 2);
  EXPECT_EQ(of_any("bias"), 1);
  EXPECT_EQ(of_any("weight"), 0);
  EXPECT_FALSE(GroupOfAny(nullptr, names));
}

}  // namespace
}  // namespace tandem::optimizer_groups_test
