#include "models/modules/module_paths.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

namespace tandem::module_paths_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace nn = torch::nn;

struct Net : nn::Module {
  Net() {
    embed = register_module("embed", nn::Linear(2, 3));
    blocks = register_module("blocks", nn::ModuleList());
    for (int i = 0; i < 11; ++i) blocks->push_back(nn::Linear(3, 3));
    act = register_module("act", nn::ReLU());
    head = register_module("head", nn::Linear(3, 2));
  }
  nn::Linear embed{nullptr}, head{nullptr};
  nn::ModuleList blocks{nullptr};
  nn::ReLU act{nullptr};
};

using Patterns = std::vector<std::string>;

std::vector<std::string> PathsAt(const Patterns& patterns) {
  const auto modules = ModulesAt(std::make_shared<Net>(), patterns);
  EXPECT_TRUE(modules.ok()) << modules.status();
  std::vector<std::string> paths;
  if (!modules.ok()) return paths;
  for (const ModuleAtPath& each : *modules) paths.push_back(each.path);
  return paths;
}

std::string ErrorText(const std::shared_ptr<nn::Module>& net,
                      const Patterns& patterns) {
  const auto modules = ModulesAt(net, patterns);
  EXPECT_EQ(modules.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(modules.status().message());
}

TEST(ModulePathsTest, ModulesComeInTheOrderOfPatterns) {
  EXPECT_THAT(PathsAt({"*"}), ElementsAre("embed", "blocks", "act", "head"));
  const std::vector<std::string> paths =
      PathsAt({"embed", "blocks.*", "head", "act"});
  ASSERT_EQ(paths.size(), 14u);
  EXPECT_EQ(paths[1], "blocks.0");
  EXPECT_EQ(paths[3], "blocks.2");  // by number, not by letter
  EXPECT_EQ(paths[11], "blocks.10");
  EXPECT_EQ(paths[13], "act");
  EXPECT_EQ(PathsAt({"embed", "blocks.*", "head", "!act"}).size(), 13u);
}

TEST(ModulePathsTest, WhatDoesNotFitIsNamed) {
  const auto net = std::make_shared<Net>();
  EXPECT_THAT(ErrorText(net, {"embed", "layers.*"}),
              AllOf(HasSubstr("'layers.*' matches nothing"),
                    HasSubstr("embed, blocks, act, head")));
  EXPECT_THAT(ErrorText(net, {"act.*"}), HasSubstr("'act' has no children"));
  EXPECT_THAT(ErrorText(net, {"blocks.first"}),
              HasSubstr("'blocks' has 0, 1, 2, 3, 4, 5, 6, 7 and 3 more"));
  EXPECT_THAT(
      ErrorText(net, {"embed", "blocks.*", "act"}),
      AllOf(HasSubstr("no pattern names 'head'"), HasSubstr("'!head'")));
  EXPECT_THAT(ErrorText(net, {"embed", "blocks.*", "head"}),
              HasSubstr("no pattern names 'act'"));
  EXPECT_THAT(ErrorText(net, {"embed", "blocks.*", "act", "!head"}),
              HasSubstr("'!head' says that it is not called, but it has par"));
  EXPECT_THAT(ErrorText(net, {"embed", "blocks.*", "act", "head", "blocks.3"}),
              HasSubstr("'blocks.3' is named twice"));
  EXPECT_THAT(ErrorText(net, {"*", "blocks.3"}),
              HasSubstr("'blocks' is named, and so is a module within it"));
  EXPECT_THAT(ErrorText(net, {}), HasSubstr("no pattern names a module"));
  EXPECT_THAT(ErrorText(nullptr, {"*"}), HasSubstr("null"));
}

TEST(ModulePathsTest, AParameterAroundLayersIsNamed) {
  const auto net = std::make_shared<Net>();
  net->blocks->register_parameter("scale", at::ones({1}));
  EXPECT_THAT(ErrorText(net, {"embed", "blocks.*", "act", "head"}),
              HasSubstr("parameter 'blocks.scale' is of a module around"));
}

TEST(ModulePathsTest, ASharedParameterIsNamed) {
  const auto net = std::make_shared<Net>();
  net->register_module("tied", net->embed.ptr());
  EXPECT_THAT(ErrorText(net, {"*"}),
              HasSubstr("'embed.weight' and 'tied.weight' are one tensor"));
}

}  // namespace
}  // namespace tandem::module_paths_test
