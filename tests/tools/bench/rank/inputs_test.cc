#include "tools/bench/rank/inputs.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::inputs_test {
namespace {

TEST(InputsTest, AreTheSameEachTimeAndDifferByBatch) {
  const Workload workload = *WorkloadNamed("gpt_tiny");
  const std::string folder = testing::TempDir();
  for (const char* name : {"/a", "/b"}) {
    ASSERT_TRUE(WriteInputsFile(workload, folder + name).ok());
  }
  const auto first = ReadInputsFile(workload, folder + "/a", 0, 1);
  const auto again = ReadInputsFile(workload, folder + "/b", 0, 1);
  ASSERT_TRUE(first.ok() && again.ok());
  ASSERT_EQ(first->batches.size(), static_cast<size_t>(kBatches));
  EXPECT_EQ(first->batches[0].size, workload.batch_size);
  EXPECT_TRUE(first->batches[0].inputs.equal(again->batches[0].inputs));
  EXPECT_FALSE(first->batches[0].inputs.equal(first->batches[1].inputs));
  EXPECT_FALSE(first->state.empty());
}

TEST(InputsTest, AReplicaTakesItsPartOfEachBatch) {
  Workload workload = *WorkloadNamed("mlp_small");
  workload.batch_size = 5;
  const std::string path = testing::TempDir() + "/inputs";
  ASSERT_TRUE(WriteInputsFile(workload, path).ok());
  const auto whole = ReadInputsFile(workload, path, 0, 1);
  const auto first = ReadInputsFile(workload, path, 0, 2);
  const auto second = ReadInputsFile(workload, path, 1, 2);
  ASSERT_TRUE(whole.ok() && first.ok() && second.ok());
  for (size_t i = 0; i < whole->batches.size(); ++i) {
    const at::Tensor& inputs = whole->batches[i].inputs;
    EXPECT_TRUE(first->batches[i].inputs.equal(inputs.narrow(0, 0, 3)));
    EXPECT_TRUE(second->batches[i].inputs.equal(inputs.narrow(0, 3, 2)));
    EXPECT_TRUE(second->batches[i].targets.equal(
        whole->batches[i].targets.narrow(0, 3, 2)));
    EXPECT_EQ(second->batches[i].size, 2);
  }
}

TEST(InputsTest, AFileThatIsNotThereIsAnError) {
  EXPECT_FALSE(
      ReadInputsFile(*WorkloadNamed("mlp_small"), "/no/such/file", 0, 1).ok());
}

}  // namespace
}  // namespace tandem::inputs_test
