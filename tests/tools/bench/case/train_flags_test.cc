
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/bench/case/workload.h"

namespace tandem::train_flags_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::StartsWith;

TEST(TrainFlagsTest, OneEpochHasTheStepsOfAllRanks) {
  EXPECT_THAT(TrainFlags(*WorkloadNamed("resnet18"), 3, 7),
              ElementsAre("--nproc_per_node=3", "--model=resnet18",
                          "--dataset=synthetic", "--synthetic_shape=3,64,64",
                          "--synthetic_samples=672", "--batch_size=96",
                          "--optimizer=sgd", "--learning_rate=0.0001",
                          "--synthetic_classes=10"));
}

TEST(TrainFlagsTest, TokensHaveTheModelsVocabulary) {
  const auto flags = TrainFlags(*WorkloadNamed("gpt_tiny"), 2, 5);
  EXPECT_THAT(flags, Contains("--dataset=synthetic_tokens"));
  EXPECT_THAT(flags, Contains("--synthetic_shape=128"));
  EXPECT_THAT(flags, Contains("--synthetic_samples=80"));
  EXPECT_THAT(flags, Not(Contains(StartsWith("--synthetic_classes"))));
}

}  // namespace
}  // namespace tandem::train_flags_test
