#include "datasets/targets_as_inputs.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <utility>

#include "datasets/tensor_dataset.h"

namespace tandem::targets_as_inputs_test {
namespace {

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
}  // namespace tandem::targets_as_inputs_test
