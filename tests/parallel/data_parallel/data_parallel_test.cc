// DataParallel against the module without it: outputs, gradients, training.

#include "parallel/data_parallel.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensors.h"
#include "core/model/module_traits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/parallel/data_parallel/fixture.h"

namespace tandem::data_parallel_test {
namespace {

using testing::HasSubstr;
using NetPair = Pair<TwiceNet>;
using NetPointer = NetPair::Pointer;

at::Tensor LossOf(const at::Tensor& outputs) { return outputs.square().mean(); }

void BackwardOfBoth(NetPair& pair, const at::Tensor& x) {
  pair.net->zero_grad();
  pair.alone->zero_grad();
  LossOf(ValueOf(pair.parallel->Forward(x))).backward();
  LossOf(pair.alone->forward(x)).backward();
}

class DataParallelNetTest : public DataParallelTest {};

TEST_P(DataParallelNetTest, OutputsAndGradientsAreTheModules) {
  NetPair pair(devices());
  for (const int64_t samples : {12, 1, 2, 3, 5, 7, 8}) {
    for (const c10::Device from : {devices()[0], c10::Device(c10::kCPU)}) {
      const at::Tensor x = InputOf(samples, 5, 0, from);
      const std::string what = std::to_string(samples) + " samples";
      const at::Tensor outputs = ValueOf(pair.parallel->Forward(x));
      EXPECT_TRUE(IsOn(outputs, devices()[0]));
      const at::Tensor expected = pair.alone->forward(x.to(devices()[0]));
      is_alone() ? ExpectSameBits(outputs, expected, what)
                 : ExpectClose(outputs, expected, what);
      BackwardOfBoth(pair, InputOf(samples, 5, 1, devices()[0]));
      ExpectModule(*pair.net, *pair.alone, is_alone(), what);
    }
  }
}

TEST_P(DataParallelNetTest, AnEmptyBatch) {
  NetPair pair(devices());
  BackwardOfBoth(pair, InputOf(0, 5, 0, devices()[0]));
  const at::Tensor none =
      ValueOf(pair.parallel->Forward(InputOf(0, 5, 0, devices()[0])));
  EXPECT_EQ(none.sizes(), at::IntArrayRef({0, 3}));
}

TEST_P(DataParallelNetTest, TheInputsGradient) {
  NetPair pair(devices());
  const at::Tensor x = InputOf(7, 5, 0, devices()[0]).requires_grad_(true);
  LossOf(ValueOf(pair.parallel->Forward(x))).backward();
  const at::Tensor found = x.grad().clone();
  x.mutable_grad().reset();
  LossOf(pair.alone->forward(x)).backward();
  ExpectClose(found, x.grad(), "the input's gradient");
}

// A replica that keeps stale values would go another way.
TEST_P(DataParallelNetTest, TrainsAsTheModuleDoes) {
  NetPair pair(devices());
  torch::optim::SGD optimizer(pair.net->parameters(), 0.1);
  torch::optim::SGD other(pair.alone->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    BackwardOfBoth(pair, InputOf(8, 5, step, devices()[0]));
    optimizer.step();
    other.step();
    ExpectModule(*pair.net, *pair.alone, is_alone(),
                 "after step " + std::to_string(step));
  }
}

// The fused optimizers write to all parameters at once.
TEST_P(DataParallelNetTest, FollowsFlatBuffers) {
  const std::vector<OptimizerOptions> all = {SgdOptions{0.9}, AdamOptions{}};
  for (const OptimizerOptions& options : all) {
    NetPair pair(devices());
    LossOf(ValueOf(pair.parallel->Forward(InputOf(8, 5, 9, devices()[0]))))
        .backward();
    const auto flatten = [](const NetPointer& net) {
      return MakeFlatBuffers(ModuleTraits<NetPointer>::Parameters(net));
    };
    const FlatBuffers mine = flatten(pair.net), others = flatten(pair.alone);
    const auto optimizer = ValueOf(MakeOptimizer(options, mine));
    const auto other = ValueOf(MakeOptimizer(options, others));
    for (int step = 0; step < 4; ++step) {
      BackwardOfBoth(pair, InputOf(8, 5, step, devices()[0]));
      optimizer->Step(0.1);
      other->Step(0.1);
      ExpectModule(*pair.net, *pair.alone, is_alone(),
                   "after step " + std::to_string(step));
    }
  }
}

TEST_P(DataParallelNetTest, FollowsWhateverChangesTheModule) {
  NetPair pair(devices());
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  const std::vector<std::function<void(TwiceNet&)>> changes = {
      [](TwiceNet& net) { net.in->weight.mul_(2); },
      [](TwiceNet& net) { net.in->bias.set_data(net.in->bias.data().neg()); },
      [](TwiceNet& net) { net.out->weight.data().add_(1); },
      [](TwiceNet& net) { net.out->weight.mul_(1); },
      [](TwiceNet& net) { net.scale.requires_grad_(false); },
      [](TwiceNet& net) { net.scale.add_(1); },
      [](TwiceNet& net) { net.scale.requires_grad_(true); },
      [](TwiceNet& net) { net.to(at::kFloat); },
      [](TwiceNet& net) { net.to(at::kDouble); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    for (const NetPointer& net : {pair.net, pair.alone}) {
      const at::NoGradGuard no_grad;
      changes[i](*net);
    }
    const auto input = x.to(pair.net->scale.scalar_type());
    BackwardOfBoth(pair, input);
    if (pair.net->scale.scalar_type() == at::kDouble) {
      ExpectModule(*pair.net, *pair.alone, is_alone(),
                   "after change " + std::to_string(i));
    }
    ValueOf(pair.parallel->Forward(input));
  }
}

TEST_P(DataParallelNetTest, SeveralLossesAndARetainedGraph) {
  NetPair pair(devices());
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  const auto backward = [&](const at::Tensor& outputs) {
    LossOf(outputs).backward({}, /*keep_graph=*/true);
    outputs.sum().backward({}, /*keep_graph=*/true);
    LossOf(outputs).backward();
  };
  backward(ValueOf(pair.parallel->Forward(x)));
  backward(pair.alone->forward(x));
  ExpectModule(*pair.net, *pair.alone, is_alone(), "after three backwards");
}

// Each forward's graph has its own way to the parameters.
TEST_P(DataParallelNetTest, SeveralForwardsBeforeBackward) {
  NetPair pair(devices());
  const auto run = [&](const std::function<at::Tensor(const at::Tensor&)>& f) {
    const at::Tensor a = f(InputOf(8, 5, 0, devices()[0]));
    const at::Tensor b = f(InputOf(3, 5, 1, devices()[0]));
    const at::Tensor c = f(InputOf(6, 5, 2, devices()[0]));
    LossOf(b).backward();
    (LossOf(a) + LossOf(c)).backward();
  };
  run([&](const at::Tensor& x) { return ValueOf(pair.parallel->Forward(x)); });
  run([&](const at::Tensor& x) { return pair.alone->forward(x); });
  ExpectModule(*pair.net, *pair.alone, is_alone(), "after three forwards");
}

TEST_P(DataParallelNetTest, WithoutGradients) {
  NetPair pair(devices());
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  for (int again = 0; again < 2; ++again) {
    const at::NoGradGuard no_grad;
    const at::Tensor outputs = ValueOf(pair.parallel->Forward(x));
    EXPECT_FALSE(outputs.requires_grad());
    ExpectClose(outputs, pair.alone->forward(x), "outputs");
  }
  BackwardOfBoth(pair, x);
  ExpectModule(*pair.net, *pair.alone, is_alone(), "afterwards");
}

TEST_P(DataParallelNetTest, GradientsOfSomeParametersAlone) {
  NetPair pair(devices());
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]);
  const auto found =
      torch::autograd::grad({LossOf(ValueOf(pair.parallel->Forward(x)))},
                            {pair.net->scale, pair.net->in->bias});
  const auto expected =
      torch::autograd::grad({LossOf(pair.alone->forward(x))},
                            {pair.alone->scale, pair.alone->in->bias});
  ExpectClose(found[0], expected[0], "scale");
  ExpectClose(found[1], expected[1], "in.bias");
  EXPECT_FALSE(pair.net->in->weight.grad().defined());
}

// PyTorch's test_data_parallel_function_deletion (#16532), with numbers.
TEST_P(DataParallelNetTest, GradientsOfGradients) {
  NetPair pair(devices());
  const auto penalty = [&](const at::Tensor& x, const at::Tensor& outputs) {
    const at::Tensor gradient =
        torch::autograd::grad({outputs}, {x}, {at::ones_like(outputs)},
                              /*retain_graph=*/true, /*create_graph=*/true)[0];
    gradient.square().mean().backward();
  };
  const at::Tensor x = InputOf(8, 5, 0, devices()[0]).requires_grad_(true);
  penalty(x, ValueOf(pair.parallel->Forward(x)));
  penalty(x, pair.alone->forward(x));
  ExpectModule(*pair.net, *pair.alone, is_alone(), "after a penalty");
}

TEST_P(DataParallelNetTest, TheSameBitsEachTime) {
  std::vector<at::Tensor> first;
  for (int again = 0; again < 20; ++again) {
    NetPair pair(devices());
    LossOf(ValueOf(pair.parallel->Forward(InputOf(9, 5, 0, devices()[0]))))
        .backward();
    const std::vector<at::Tensor> parameters = pair.net->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (again == 0) {
        first.push_back(parameters[i].grad());
      } else {
        ExpectSameBits(parameters[i].grad(), first[i], std::to_string(i));
      }
    }
  }
}

// The same error as without the wrapper: backward would compute with other
// values.
TEST_P(DataParallelNetTest, AStepBetweenForwardAndBackwardIsAnError) {
  NetPair pair(devices());
  const at::Tensor loss =
      LossOf(ValueOf(pair.parallel->Forward(InputOf(8, 5, 0, devices()[0]))));
  {
    const at::NoGradGuard no_grad;
    pair.net->out->weight.mul_(2);
  }
  try {
    loss.backward();
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("modified by an inplace operation"));
  }
}

TANDEM_ON_ONE_TO_FOUR(DataParallelNetTest);

}  // namespace
}  // namespace tandem::data_parallel_test
