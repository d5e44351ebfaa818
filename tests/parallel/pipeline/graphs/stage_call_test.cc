// What tells calls of a stage apart: all that a graph of one would repeat.

#include "parallel/pipeline/graphs/stage_call.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tandem::stage_call_test {
namespace {

StageCall Plain() {
  StageCall call;
  call.pass.microbatch = {1, 4};
  call.pass.weight = 0.25;
  call.inputs = {at::zeros({2, 3}), at::zeros({2}, at::kLong)};
  call.targets =
      LossTargets(at::zeros({2}, at::kLong), {{"further", at::zeros({2, 1})}});
  call.weight = 0.25;
  return call;
}

TEST(StageCallTest, WhichMicrobatchItIsIsNoForm) {
  StageCall other = Plain();
  other.pass.microbatch.index = 2;
  other.inputs[0] = at::ones({2, 3});
  EXPECT_EQ(FormOf(other), FormOf(Plain()));
}

TEST(StageCallTest, WhatAGraphRepeatsIsItsForm) {
  const std::vector<std::function<void(StageCall&)>> changes = {
      [](StageCall& c) {
        c.inputs[0] = at::zeros({3, 2});
      },
      [](StageCall& c) {
        c.inputs[0] = at::zeros({2, 3}, at::kDouble);
      },
      [](StageCall& c) { c.inputs[0].requires_grad_(true); },
      [](StageCall& c) { c.inputs.pop_back(); },
      [](StageCall& c) { c.inputs[1] = at::Tensor(); },
      [](StageCall& c) { c.targets.targets = at::Tensor(); },
      [](StageCall& c) {
        c.targets.further["further"] = at::zeros({2, 2});
      },
      [](StageCall& c) { c.targets.further["more"] = at::zeros({2}); },
      [](StageCall& c) { c.weight = std::nextafter(c.weight, 1); },
      [](StageCall& c) { c.pass.weight = std::nextafter(c.pass.weight, 1); },
      [](StageCall& c) { c.pass.loss_scale = at::ones({}); },
      [](StageCall& c) { c.pass.microbatch.count = 5; },
  };
  std::set<std::string> forms = {FormOf(Plain())};
  for (const auto& change : changes) {
    StageCall call = Plain();
    change(call);
    EXPECT_TRUE(forms.insert(FormOf(call)).second) << FormOf(call);
  }
}

TEST(StageCallTest, GradientsThatDoNotComeAreTold) {
  EXPECT_EQ(FormOfGradients({at::zeros({2, 3}), at::Tensor()}),
            "Float[2,3] none");
  EXPECT_EQ(FormOfGradients({}), "");
}

}  // namespace
}  // namespace tandem::stage_call_test
