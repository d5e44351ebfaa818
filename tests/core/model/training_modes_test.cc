#include "core/model/training_modes.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace tandem::training_modes_test {
namespace {

struct Node : torch::nn::Module {
  std::shared_ptr<Node> Add(const std::string& name) {
    return register_module(name, std::make_shared<Node>());
  }
};

LayerList LayersOf(const std::vector<std::shared_ptr<Node>>& modules) {
  LayerList layers = {Layer{"none", nullptr, nullptr}};
  for (const auto& each : modules) {
    layers.push_back(Layer{"a", each, nullptr});
  }
  return layers;
}

TEST(TrainingModesTest, ReachAllModules) {
  const auto root = std::make_shared<Node>();
  const auto child = root->Add("child");
  const TrainingModes modes(LayersOf({root}));
  for (const bool on : {false, true, false, true}) {
    modes.Set(on);
    EXPECT_EQ(root->is_training(), on);
    EXPECT_EQ(child->is_training(), on);
  }
}

TEST(TrainingModesTest, WhatWasInEvaluationModeStaysInIt) {
  const auto root = std::make_shared<Node>();
  const auto frozen = root->Add("frozen");
  const auto below = frozen->Add("below");
  const auto trained = frozen->Add("trained");
  const auto other = root->Add("other");
  const auto layer = std::make_shared<Node>();
  frozen->eval();
  trained->train();
  layer->eval();
  const TrainingModes modes(LayersOf({root, layer}));
  for (const bool on : {true, false, true}) {
    modes.Set(on);
    EXPECT_EQ(root->is_training(), on);
    EXPECT_FALSE(frozen->is_training());
    EXPECT_FALSE(below->is_training());
    EXPECT_EQ(trained->is_training(), on);
    EXPECT_EQ(other->is_training(), on);
    EXPECT_FALSE(layer->is_training());
  }
}

// A model that keeps its BatchNorm in evaluation mode by itself.
struct Stubborn : Node {
  void train(bool on = true) override {
    Node::train(on);
    for (const auto& child : children()) child->eval();
  }
};

TEST(TrainingModesTest, AModulesOwnWayOfTrainingCounts) {
  const auto root = std::make_shared<Stubborn>();
  const auto child = root->Add("child");
  const TrainingModes modes(LayersOf({root}));
  modes.Set(true);
  EXPECT_TRUE(root->is_training());
  EXPECT_FALSE(child->is_training());
}

}  // namespace
}  // namespace tandem::training_modes_test
