#include "models/modules/layers_of.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "models/modules/batch_of_trees.h"
#include "tests/core/testing/log_lines.h"

namespace tandem::layers_of_test {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace nn = torch::nn;
using TensorMapping = std::map<std::string, Tensor>;

std::string ErrorText(const absl::StatusOr<ModuleLayers>& layers) {
  EXPECT_EQ(layers.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(layers.status().message());
}

TEST(LayersOfTest, ASequentialIsAListOfItsChildren) {
  nn::Sequential net(nn::Linear(4, 3), nn::ReLU(), nn::Linear(3, 2));
  const auto layers = LayersOf(net);
  ASSERT_TRUE(layers.ok()) << layers.status();
  ASSERT_EQ(layers->specs.size(), 3u);
  EXPECT_EQ(layers->specs[2].name, "2");
  EXPECT_EQ(layers->specs[2].type, "Linear");
  const LayerList made = MakeLayers(layers->specs, /*seed=*/7);
  const Tensor x = at::randn({5, 4});
  EXPECT_TRUE(Forward(made, x).equal(net->forward(x)));
  // They are the module's own, with its names.
  const NamedTensors parameters = NamedParameters(made);
  for (const auto& [name, tensor] : parameters) {
    EXPECT_TRUE(net->named_parameters()[name].is_same(tensor)) << name;
  }
  EXPECT_EQ(parameters.size(), 4u);
}

// Takes GRU's result, a tuple, as one argument.
struct LastState : nn::Module {
  Tensor forward(std::tuple<Tensor, Tensor> both) {
    return std::get<1>(both).squeeze(0);
  }
};

TEST(LayersOfTest, ATupleGoesOnAsASkip) {
  nn::Sequential net(nn::GRU(nn::GRUOptions(4, 3).batch_first(true)),
                     LastState(), nn::Linear(3, 2));
  const Tensor x = at::randn({5, 6, 4});
  const auto layers = LayersOf(net, ToTree(x));
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_THAT(layers->specs[0].links.stash, ElementsAre("0.output[1]"));
  EXPECT_THAT(layers->specs[1].links.pop, ElementsAre("0.output[1]"));
  EXPECT_TRUE(CheckSkips(LinksByLayer(layers->specs)).ok());
  EXPECT_TRUE(Forward(MakeLayers(layers->specs, 7), x).equal(net->forward(x)));

  const LayerList without = MakeLayers(LayersOf(net)->specs, 7);
  try {
    Forward(without, x);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(std::string(error.what()),
                HasSubstr("tensors at [0], [1], where one tensor should be "
                          "(LayersOf learns it from an example)"));
  }
}

struct Embed : nn::Module {
  Embed() { linear = register_module("linear", nn::Linear(2, 3)); }
  TensorMapping forward(const Tensor& x, const Tensor& mask) {
    return {{"x", linear->forward(x)}, {"mask", mask}};
  }
  nn::Linear linear{nullptr};
};

struct Block : nn::Module {
  Block() {
    linear = register_module("linear", nn::Linear(3, 3));
    norm = register_module("norm", nn::BatchNorm1d(3));
  }
  TensorMapping forward(TensorMapping map) {
    map["x"] = map["x"] + at::dropout(norm(linear(map["x"])), 0.5, true);
    return map;
  }
  nn::Linear linear{nullptr};
  nn::BatchNorm1d norm{nullptr};
};

struct Head : nn::Module {
  Head() { linear = register_module("linear", nn::Linear(3, 2)); }
  std::vector<Tensor> forward(const TensorMapping& map) {
    const Tensor y = linear(map.at("x")) * map.at("mask");
    return {y, y.sum(1)};
  }
  nn::Linear linear{nullptr};
};

struct Net : nn::Module {
  Net() {
    embed = register_module("embed", std::make_shared<Embed>());
    blocks = register_module("blocks", nn::ModuleList());
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Block>());
    head = register_module("head", std::make_shared<Head>());
  }
  std::shared_ptr<Embed> embed;
  std::shared_ptr<Head> head;
  nn::ModuleList blocks{nullptr};
};

const std::vector<std::string>& Patterns() {
  static const auto* patterns =
      new std::vector<std::string>{"embed", "blocks.*", "head"};
  return *patterns;
}

c10::IValue Example() {
  return ToTree(std::make_tuple(at::ones({4, 2}), at::ones({4, 1})));
}

TEST(LayersOfTest, DictsAndListsGoByTheirKeys) {
  const auto net = std::make_shared<Net>();
  const auto layers = LayersOf<Embed, Block, Head>(net, Patterns(), Example());
  ASSERT_TRUE(layers.ok()) << layers.status();
  ASSERT_EQ(layers->specs.size(), 5u);
  EXPECT_THAT(layers->specs[0].links.reads, ElementsAre("input[1]"));
  EXPECT_THAT(layers->specs[1].links.pop, ElementsAre("embed.output['x']"));
  EXPECT_THAT(layers->specs[1].links.stash,
              ElementsAre("blocks.0.output['x']"));
  EXPECT_THAT(layers->specs[4].links.stash, ElementsAre("output[1]"));
  EXPECT_THAT(layers->inputs.paths(), ElementsAre("[0]", "[1]"));
  EXPECT_THAT(layers->outputs.paths(), ElementsAre("[0]", "[1]"));

  net->eval();
  for (const auto& block : *net->blocks) {  // dropout is not a module here
    for (Tensor& each : block->parameters()) each.data().zero_();
  }
  const Tensor x = at::randn({4, 2}), mask = at::randn({4, 1});
  const Tensor y =
      net->head->forward({{"x", net->embed->linear(x)}, {"mask", mask}})[0];
  const auto [first, further] = ForwardWithSkips(
      MakeLayers(layers->specs, 7), x, {{"input[1]", mask}}, {"output[1]"});
  EXPECT_TRUE(first.equal(y));
  EXPECT_TRUE(further.at("output[1]").equal(y.sum(1)));
}

TEST(LayersOfTest, TheExampleLeavesNoTrace) {
  const auto net = std::make_shared<Net>();
  const auto before = [&] {
    std::vector<Tensor> copies;
    for (const Tensor& each : net->buffers()) copies.push_back(each.clone());
    return copies;
  }();
  at::manual_seed(3);
  const Tensor expected = at::randn({2});
  at::manual_seed(3);
  ASSERT_TRUE((LayersOf<Embed, Block, Head>(net, Patterns(), Example())).ok());
  EXPECT_TRUE(at::randn({2}).equal(expected));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(net->buffers()[i].equal(before[i])) << i;
  }
  EXPECT_TRUE(net->is_training());
}

TEST(LayersOfTest, ModulesThatCannotBeCalledAreNamed) {
  const auto net = std::make_shared<Net>();
  EXPECT_THAT(ErrorText(LayersOf<Embed, Head>(net, Patterns())),
              AllOf(HasSubstr("'blocks.0'"), HasSubstr("Block"),
                    HasSubstr("add its class")));
  EXPECT_THAT(ErrorText(LayersOf<Embed, Block>(net, {"embed", "blocks.*"})),
              HasSubstr("no pattern names 'head'"));
  EXPECT_THAT(ErrorText(LayersOf<Embed, Block, Head>(net, Patterns(),
                                                     at::ones({4, 2}))),
              AllOf(HasSubstr("the example in 'embed'"),
                    HasSubstr("expects 2 argument(s), but received 1")));
  EXPECT_THAT(
      ErrorText(LayersOf<Embed, Block, Head>(net, Patterns(), c10::IValue(5))),
      HasSubstr("the example"));
}

// What a forward does between its children, and what of it there is no module
// for.
struct Residual : nn::Module {
  Residual() {
    a = register_module("a", nn::Linear(8, 8));
    b = register_module("b", nn::Linear(8, 8));
    c = register_module("c", nn::Linear(8, 2));
  }
  Tensor forward(const Tensor& x) {
    ++calls;
    const Tensor h = at::relu(a(x));
    return c(at::relu(b(h)) + h);
  }
  nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
  int calls = 0;
};

// The same function as its children one after the other, dropout and all.
struct Chain : nn::Module {
  Chain() {
    a = register_module("a", nn::Linear(8, 8));
    norm = register_module("norm", nn::BatchNorm1d(8));
    drop = register_module("drop", nn::Dropout(0.5));
    c = register_module("c", nn::Linear(8, 2));
  }
  Tensor forward(Tensor x) const {
    TORCH_CHECK(!fails, "not to be called");
    nn::Linear first = a, last = c;
    nn::BatchNorm1d between = norm;
    nn::Dropout dropped = drop;
    return last(dropped(between(first(x))));
  }
  nn::Linear a{nullptr}, c{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Dropout drop{nullptr};
  bool fails = false;
};

TEST(LayersOfTest, AForwardThatDoesMoreThanCallItsChildrenIsRefused) {
  at::manual_seed(1);
  const auto net = std::make_shared<Residual>();
  const std::vector<std::string> patterns = {"a", "b", "c"};
  EXPECT_THAT(
      ErrorText(LayersOf<nn::LinearImpl>(net, patterns, at::ones({3, 8}))),
      AllOf(HasSubstr("another function than the module's own forward"),
            HasSubstr("values that differ by up to"),
            HasSubstr("ModuleCalls")));
  EXPECT_EQ(net->calls, 1);
  const std::shared_ptr<nn::Module> hidden = net;
  EXPECT_TRUE(
      LayersOf<nn::LinearImpl>(hidden, patterns, at::ones({3, 8})).ok());
}

TEST(LayersOfTest, AForwardThatCallsItsChildrenIsNot) {
  const auto net = std::make_shared<Chain>();
  const auto layers = [&] {
    return LayersOf<nn::LinearImpl, nn::BatchNorm1dImpl, nn::DropoutImpl>(
        net, {"a", "norm", "drop", "c"}, at::randn({16, 8}));
  };
  EXPECT_TRUE(layers().ok()) << layers().status();
  EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 0);
  net->fails = true;
  LogLines log;
  EXPECT_TRUE(layers().ok()) << layers().status();
  EXPECT_TRUE(log.Await("not to be called"));
}

TEST(LayersOfTest, OnlyAForwardOfTreesIsCompared) {
  struct OfNumbers : nn::Module {
    Tensor forward(const Tensor& x, int64_t /*unused*/) { return x; }
  };
  struct OfLists : nn::Module {
    std::tuple<Tensor, std::vector<Tensor>> forward(TensorMapping x) {
      return {x["x"], {x["y"]}};
    }
  };
  struct OfNumberLists : nn::Module {
    Tensor forward(const Tensor& x, const std::vector<int64_t>&) { return x; }
  };
  struct Overloaded : nn::Module {
    Tensor forward(const Tensor& x) { return x; }
    Tensor forward(const Tensor& x, const Tensor&) { return x; }
  };
  EXPECT_TRUE(OwnForward(std::make_shared<OfNumbers>()) == nullptr);
  EXPECT_TRUE(OwnForward(std::make_shared<OfLists>()) != nullptr);
  EXPECT_TRUE(OwnForward(std::make_shared<OfNumberLists>()) == nullptr);
  EXPECT_TRUE(OwnForward(std::make_shared<Overloaded>()) == nullptr);
  EXPECT_TRUE(OwnForward(std::make_shared<Net>()) == nullptr);
}

TEST(LayersOfTest, WithoutAnExampleWhatLooksWrongIsLogged) {
  LogLines log;
  ASSERT_TRUE(
      LayersOf<nn::LinearImpl>(std::make_shared<Residual>(), {"b", "a", "c"})
          .ok());
  EXPECT_TRUE(
      log.Await("layers 'b' and 'a' follow each other with nothing in "
                "between"));
  EXPECT_TRUE(
      log.Await("layer 'b' is called before 'a', which is registered "
                "before it"));
  const size_t before = log.lines().size();
  ASSERT_TRUE(
      (LayersOf<Embed, Block, Head>(std::make_shared<Net>(), Patterns())).ok());
  EXPECT_EQ(log.lines().size(), before);
}

TEST(LayersOfTest, AListOfModulesIsNamedByItsChildren) {
  EXPECT_THAT(ErrorText(LayersOf<Embed, Block, Head>(
                  std::make_shared<Net>(), {"embed", "blocks", "head"})),
              HasSubstr("which has no forward: name what it holds, "
                        "'blocks.*'"));
}

TEST(LayersOfTest, ASequentialWithinAModuleNeedsNoClass) {
  struct Outer : nn::Module {
    Outer() {
      features = register_module("features",
                                 nn::Sequential(nn::Linear(4, 4), nn::Tanh()));
      head = register_module("head",
                             nn::Sequential(nn::Linear(4, 2), nn::Sigmoid()));
    }
    nn::Sequential features{nullptr}, head{nullptr};
  };
  const auto net = std::make_shared<Outer>();
  const auto layers = LayersOf(net, {"features.*", "head"}, ModuleCalls());
  ASSERT_TRUE(layers.ok()) << layers.status();
  ASSERT_EQ(layers->specs.size(), 3u);
  const Tensor x = at::randn({5, 4});
  EXPECT_TRUE(Forward(MakeLayers(layers->specs, 7), x)
                  .equal(net->head->forward(net->features->forward(x))));
}

TEST(BatchOfTreesTest, TensorsGoByTheirPaths) {
  const Tensor x = at::ones({3, 2}), mask = at::ones({3}), y = at::ones({3});
  const auto batch = BatchOfTrees(ToTree(std::make_tuple(x, mask)),
                                  ToTree(TensorMapping{{"y", y}, {"z", x}}));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->size, 3);
  EXPECT_TRUE(batch->inputs.is_same(x));
  EXPECT_TRUE(batch->further_inputs.at("input[1]").toTensor().is_same(mask));
  EXPECT_TRUE(batch->targets.is_same(y));
  EXPECT_TRUE(batch->further_targets.at("target['z']").toTensor().is_same(x));
  EXPECT_FALSE(BatchOfTrees(ToTree(at::ones({})), ToTree(y)).ok());
  EXPECT_FALSE(BatchOfTrees(c10::IValue(3), ToTree(y)).ok());
}

TEST(BatchOfTreesTest, ALossIsGivenTheTrees) {
  const Tensor one = at::ones({3});
  const TensorMapping outputs = {{"a", one}, {"b", one * 2}};
  const auto targets = std::make_tuple(one * 3, one * 4);
  const LossFunction loss = LossOf<TensorMapping, std::tuple<Tensor, Tensor>>(
      *TreeForm::Of(ToTree(outputs)), *TreeForm::Of(ToTree(targets)),
      [](const TensorMapping& output_tensors,
         const std::tuple<Tensor, Tensor>& t) {
        LossResult result;
        result.loss = (output_tensors.at("a") * std::get<0>(t) +
                       output_tensors.at("b") * std::get<1>(t))
                          .mean();
        result.score.count = 3;
        return result;
      });
  EXPECT_THAT(loss.names().outputs, ElementsAre("output['b']"));
  EXPECT_THAT(loss.names().targets, ElementsAre("target[1]"));
  const LossResult result = loss(
      {one, {{"output['b']", one * 2}}, one * 3, {{"target[1]", one * 4}}});
  EXPECT_EQ(result.loss.item<double>(), 11);
}

}  // namespace
}  // namespace tandem::layers_of_test
