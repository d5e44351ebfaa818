#include "datasets/tensor_dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/testing/statuses.h"
#include "datasets/targets_as_inputs.h"
#include "gmock/gmock.h"

namespace tandem::tensor_dataset_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TensorDatasetTest, GivesTheSamplesThatAreAskedFor) {
  const at::Tensor inputs = at::arange(30, at::kFloat).view({5, 2, 3});
  const at::Tensor targets = at::tensor({4, 3, 2, 1, 0}, at::kLong);
  const auto data = MakeTensorDataset(inputs, targets, 5);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 5);
  EXPECT_EQ((*data)->classes(), 5);
  EXPECT_FALSE((*data)->tokens());
  EXPECT_THAT((*data)->input_shape(), ElementsAre(2, 3));
  const auto batch = (*data)->Get({3, 0, 3});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->size, 3);
  EXPECT_TRUE(
      batch->inputs.equal(at::stack({inputs[3], inputs[0], inputs[3]})));
  EXPECT_TRUE(batch->targets.equal(at::tensor({1, 4, 1}, at::kLong)));
}

TEST(TensorDatasetTest, ReadsNoPartThatIsNotWanted) {
  const auto data = MakeTensorDataset(at::ones({2, 4}, at::kLong),
                                      at::zeros({2, 4}, at::kLong), 1);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE((*data)->tokens());
  const auto inputs = (*data)->Get({1}, {true, false});
  EXPECT_TRUE(inputs->inputs.defined());
  EXPECT_FALSE(inputs->targets.defined());
  const auto targets = (*data)->Get({1}, {false, true});
  EXPECT_FALSE(targets->inputs.defined());
  EXPECT_TRUE(targets->targets.defined());
  EXPECT_THAT((*data)->Get({2}).status(), Says("sample 2"));
}

std::string Error(const at::Tensor& inputs, const at::Tensor& targets) {
  const auto data = MakeTensorDataset(inputs, targets, 3);
  EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(data.status().message());
}

TEST(TensorDatasetTest, WhatDoesNotFitIsRefused) {
  const at::Tensor two = at::zeros({2, 1}, at::kFloat);
  EXPECT_THAT(Error(two, at::zeros({3}, at::kLong)),
              HasSubstr("inputs F32 [2, 1] on cpu and targets I64 [3] on cpu"));
  EXPECT_THAT(Error(two.to(at::kDouble), at::zeros({2}, at::kLong)),
              HasSubstr("expected float32 or int64 inputs"));
  EXPECT_THAT(Error(two, at::zeros({2}, at::kFloat)),
              HasSubstr("int64 targets"));
  EXPECT_THAT(Error(at::Tensor(), at::zeros({2}, at::kLong)),
              HasSubstr("inputs none"));
  EXPECT_THAT(Error(two, at::tensor({0, 3}, at::kLong)),
              HasSubstr("target 3: expected class numbers from 0 to 2"));
  EXPECT_THAT(Error(two, at::tensor({0, -1}, at::kLong)),
              HasSubstr("target -1"));
}

TEST(TargetsAsInputsTest, TargetsGoWithTheInputs) {
  auto plain = MakeTensorDataset(at::arange(6, at::kFloat).view({3, 2}),
                                 at::arange(3, at::kLong), 3);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto data = TargetsAsInputs(*std::move(plain), "labels");
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->classes(), 3);
  for (const bool inputs : {true, false}) {
    for (const bool targets : {true, false}) {
      const auto batch = data->Get({2, 0}, {inputs, targets});
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ(batch->inputs.defined(), inputs);
      EXPECT_EQ(batch->targets.defined(), targets);
      ASSERT_EQ(batch->further_inputs.count("labels"), inputs ? 1u : 0u);
      if (!inputs) continue;
      EXPECT_EQ(batch->further_inputs.at("labels")
                    .toTensor()
                    .select(0, 0)
                    .item<int64_t>(),
                2);
    }
  }
}

}  // namespace
}  // namespace tandem::tensor_dataset_test
