#include "core/model/layer_list.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/device/memory_category.h"
#include "core/sim/testing.h"
#include "gtest/gtest.h"

namespace tandem::layer_list_test {
namespace {

class Child : public torch::nn::Module {
 public:
  Child() { register_buffer("count", at::zeros({})); }
};

// x -> factor * x, with a child that holds a buffer.
class Scale : public torch::nn::Module {
 public:
  explicit Scale(double factor) {
    register_module("child", std::make_shared<Child>());
    register_parameter("factor", at::full({1}, factor));
  }
  at::Tensor forward(const at::Tensor& x) { return x * parameters()[0]; }
};

LayerSpec ScaleSpec(const std::string& name) {
  return {name, "Scale", [name](uint64_t seed) {
            auto module = std::make_shared<Scale>(static_cast<double>(seed));
            return Layer{name, module, [module](const at::Tensor& x) {
                           return module->forward(x);
                         }};
          }};
}

LayerSpec AddOne(const std::string& name) {
  return {
      name, "AddOne", [name](uint64_t) {
        return Layer{name, nullptr, [](const at::Tensor& x) { return x + 1; }};
      }};
}

std::vector<std::string> Names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& item : tensors) names.push_back(item.first);
  return names;
}

LayerList Example() {
  return MakeLayers({ScaleSpec("b"), AddOne("one"), ScaleSpec("a.0")}, 3);
}

TEST(LayerListTest, ForwardGoesThroughAllLayersInOrder) {
  const at::Tensor output = Forward(Example(), at::full({2}, 5.0));
  EXPECT_TRUE(output.equal(at::full({2}, (5.0 * 3 + 1) * 3)));
}

TEST(LayerListTest, AnEmptyListGivesTheInputBack) {
  const at::Tensor input = at::full({2}, 5.0);
  EXPECT_TRUE(Forward({}, input).is_same(input));
  EXPECT_TRUE(NamedParameters({}).empty());
  EXPECT_TRUE(NamedBuffers({}).empty());
}

TEST(LayerListTest, NamesAreTheLayersNameAndTheModules) {
  const LayerList layers = Example();
  EXPECT_EQ(Names(NamedParameters(layers)),
            (std::vector<std::string>{"b.factor", "a.0.factor"}));
  EXPECT_EQ(Names(NamedBuffers(layers)),
            (std::vector<std::string>{"b.child.count", "a.0.child.count"}));
}

TEST(LayerListTest, NamedTensorsAliasTheLiveOnes) {
  const LayerList layers = Example();
  NamedBuffers(layers)[0].second.fill_(9);
  EXPECT_EQ(NamedBuffers(layers)[0].second.item<double>(), 9);
  NamedParameters(layers)[0].second.detach().fill_(0);
  EXPECT_TRUE(
      Forward(layers, at::full({1}, 5.0)).detach().equal(at::full({1}, 3.0)));
}

TEST(LayerListTest, SetTrainingReachesChildren) {
  const LayerList layers = Example();
  for (bool on : {false, true}) {
    SetTraining(layers, on);
    EXPECT_EQ(layers[0].module->is_training(), on);
    EXPECT_EQ(layers[2].module->children()[0]->is_training(), on);
  }
}

// x -> x + 100, and leaves x.
LayerSpec Leave(const std::string& skip) {
  const LayerLinks links = {{skip}, {}, {}};
  const auto make = [skip](uint64_t) {
    Layer layer{"leave", nullptr, nullptr};
    layer.forward_with_skips = [skip](const at::Tensor& x, Skips& skips) {
      skips[skip] = x;
      return x + 100;
    };
    return layer;
  };
  return {"leave", "Leave", make, links};
}

// x -> x + the skip, taken.
LayerSpec Take(const std::string& skip) {
  const LayerLinks links = {{}, {skip}, {}};
  const auto make = [skip](uint64_t) {
    Layer layer{"take", nullptr, nullptr};
    layer.forward_with_skips = [skip](const at::Tensor& x, Skips& skips) {
      return x + skips.extract(skip).mapped();
    };
    return layer;
  };
  return {"take", "Take", make, links};
}

TEST(LayerListTest, SkipsGoPastLayers) {
  const LayerSpecs specs = {Leave("a"), AddOne("one"), Take("a")};
  EXPECT_EQ(LinksByLayer(specs)[0].stash, std::vector<std::string>({"a"}));
  const LayerList layers = MakeLayers(specs, 3);
  EXPECT_EQ(LinksByLayer(layers)[2].pop, std::vector<std::string>({"a"}));
  EXPECT_TRUE(Forward(layers, at::full({2}, 5.0)).equal(at::full({2}, 111.0)));
}

// What the exception says; empty: there is none.
std::string ThrownBy(const LayerList& layers, const Skips& further = {}) {
  try {
    Forward(layers, at::full({2}, 5.0), further);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(LayerListTest, ALayerThatDoesNotLeaveWhatItSaysIsNamed) {
  LayerList layers = MakeLayers({Leave("a")}, 3);
  layers[0].links.stash = {"b"};
  EXPECT_EQ(ThrownBy(layers),
            "layer leave has not left the skip connection 'b', which its "
            "links.stash declare");
}

// torchgpipe lets a skip be None; here what is on its way is a tensor.
TEST(LayerListTest, AnUndefinedTensorIsNoSkipAndNoOutput) {
  LayerList layers = MakeLayers({Leave("a"), Take("a"), AddOne("one")}, 3);
  const auto leave = layers[0].forward_with_skips;
  layers[0].forward_with_skips = [](const at::Tensor& x, Skips& skips) {
    skips["a"] = at::Tensor();
    return x;
  };
  EXPECT_EQ(ThrownBy(layers),
            "layer leave has left an undefined tensor as the skip connection "
            "'a': leave at::zeros(...), or none and no links.stash");
  layers[0].forward_with_skips = leave;
  layers[2].forward = [](const at::Tensor&) { return at::Tensor(); };
  EXPECT_EQ(ThrownBy(layers), "layer one has given an undefined tensor");
}

TEST(LayerListTest, ASkipThatIsNotThereIsNamed) {
  LayerList layers = MakeLayers({Leave("a"), AddOne("one")}, 3);
  layers[0].links.pop = {"a"};
  EXPECT_EQ(ThrownBy(layers),
            "layer leave takes the skip connection 'a', which is not there");
}

TEST(LayerListTest, ALayerWithoutAForwardIsNamed) {
  LayerList layers = MakeLayers({AddOne("one")}, 3);
  layers[0].links.stash = {"a"};
  EXPECT_EQ(ThrownBy(layers),
            "layer one has no forward_with_skips, which its links ask for");
  layers[0] = {"none", nullptr, nullptr};
  EXPECT_EQ(ThrownBy(layers), "layer none has no forward");
}

// x -> x + the further input.
LayerSpec Read(const std::string& name) {
  LayerLinks links;
  links.reads = {name};
  const auto make = [name](uint64_t) {
    Layer layer{"read", nullptr, nullptr};
    layer.forward_with_skips = [name](const at::Tensor& x, Skips& skips) {
      return x + skips.at(name);
    };
    return layer;
  };
  return {"read", "Read", make, links};
}

TEST(LayerListTest, FurtherInputsAreReadByAnyLayer) {
  const LayerList layers = MakeLayers(
      {AddOne("one"), Read("b"), Leave("a"), Read("b"), Take("a"), Read("c")},
      3);
  const Skips further = {{"b", at::full({2}, 1000.0)},
                         {"c", at::full({2}, 0.5)}};
  // 6 + 1000 is left, and then 100, 1000, what was left and 0.5 are added.
  EXPECT_TRUE(Forward(layers, at::full({2}, 5.0), further)
                  .equal(at::full({2}, 2 * 1006 + 1100.5)));
  EXPECT_EQ(further.size(), 2u);
}

TEST(LayerListTest, AMissingFurtherInputIsNamed) {
  EXPECT_EQ(ThrownBy(MakeLayers({Read("b")}, 3)),
            "layer read reads the further input 'b', which is not there");
}

TEST(LayerListTest, AFurtherInputStaysForOthers) {
  LayerList layers = MakeLayers({Take("a")}, 3);
  layers[0].links = {};
  layers[0].links.reads = {"a"};
  EXPECT_EQ(ThrownBy(layers, {{"a", at::full({2}, 1.0)}}),
            "layer take has taken the further input 'a' out of the map, which "
            "others may read: leave it there");
}

// Scale whose factor is `other`'s.
LayerSpec TiedScale(const std::string& name, const std::string& other) {
  LayerSpec spec{name, "Scale", nullptr};
  spec.links.ties = {{"factor", other}};
  spec.make_tied = [name](uint64_t seed, const NamedTensors& shared) {
    Layer layer = ScaleSpec(name).make(seed);
    if (!shared.empty()) {
      EXPECT_EQ(shared[0].first, "factor");
      layer.module = std::make_shared<torch::nn::Module>();
      layer.module->register_parameter("factor", shared[0].second);
    }
    return layer;
  };
  return spec;
}

TEST(LayerListTest, TiedParametersAreOneWhereBothAreMade) {
  const LayerSpecs specs = {ScaleSpec("a"), TiedScale("b", "a.factor")};
  const NamedTensors both = NamedParameters(MakeLayers(specs, 3));
  ASSERT_EQ(Names(both), std::vector<std::string>({"a.factor", "b.factor"}));
  EXPECT_TRUE(both[0].second.is_same(both[1].second));

  const NamedTensors alone = NamedParameters(MakeLayers({specs[1]}, 3));
  ASSERT_EQ(Names(alone), std::vector<std::string>({"b.factor"}));
  EXPECT_TRUE(alone[0].second.equal(both[0].second));
}

// Says under which category it was moved.
class Counted : public torch::nn::Module {
 public:
  explicit Counted(std::vector<MemoryCategory>* moves) : moves_(moves) {
    register_parameter("weight", at::ones({2}));
    register_buffer("count", at::zeros({}));
  }

  void to(torch::Device device, bool non_blocking) override {
    moves_->push_back(CurrentMemoryCategory());
    Module::to(device, non_blocking);
  }

 private:
  std::vector<MemoryCategory>* const moves_;
};

Layer CountedLayer(const std::string& name,
                   std::vector<MemoryCategory>* moves) {
  return {name, std::make_shared<Counted>(moves), nullptr};
}

TEST(MoveLayersTest, ParametersAndBuffersGoAndCountAsParameters) {
  std::vector<MemoryCategory> moves;
  const LayerList layers = {CountedLayer("a", &moves),
                            {"no module", nullptr, nullptr},
                            CountedLayer("b", &moves)};
  const c10::Device device = SimDevices(2)[1];
  ASSERT_TRUE(MoveLayers(layers, device).ok());
  EXPECT_EQ(moves, std::vector<MemoryCategory>(2, MemoryCategory::kParameters));
  EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kOther);
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    EXPECT_EQ(layer.module->parameters()[0].device(), device) << layer.name;
    EXPECT_EQ(layer.module->buffers()[0].device(), device) << layer.name;
  }
}

TEST(MoveLayersTest, AnErrorNamesTheLayer) {
  std::vector<MemoryCategory> moves;
  const LayerList layers = {{"no module", nullptr, nullptr},
                            CountedLayer("second", &moves)};
  // No device of this kind in any build of ours.
  const absl::Status status = MoveLayers(layers, c10::Device(c10::kXLA, 0));
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "moving layer second"))
      << status;
}

TEST(MoveLayersTest, NoLayers) {
  EXPECT_TRUE(MoveLayers({}, c10::Device(c10::kCPU)).ok());
}

}  // namespace
}  // namespace tandem::layer_list_test
