#include "tools/trainer/job/flops.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "datasets/synthetic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/mlp.h"
#include "models/registry.h"

namespace tandem::flops_test {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Dataset> Images() {
  return *MakeSyntheticImages({{1, 16, 16}, 10, 8});
}

std::unique_ptr<Dataset> Tokens() {
  return *MakeSyntheticTokens({/*vocabulary=*/256, /*context=*/16});
}

JobFlops Of(const TrainOptions& options, const Dataset& data) {
  return FlopsOf(options, std::nullopt, data, /*devices=*/2);
}

TEST(JobFlopsTest, EveryModelOfTheTrainersCanBeCounted) {
  const auto images = Images();
  const auto tokens = Tokens();
  for (const std::string& name : KnownModels()) {
    if (name == "toy" || name == "toy_mp") continue;  // take no images
    TrainOptions options;
    options.model = name;
    const JobFlops flops = Of(options, TakesTokens(name) ? *tokens : *images);
    EXPECT_GT(flops.forward, 0) << name << ": " << flops.unknown;
  }
}

TEST(JobFlopsTest, AStepHasThreePassesAndAPeakIsOfAllDevices) {
  TrainOptions options;
  options.model = "mlp_small";
  options.peak_tflops = 0.5;
  const JobFlops flops = Of(options, *Images());
  const double forward = 2.0 * (256 * 64 + 6 * 64 * 64 + 64 * 10);
  EXPECT_EQ(flops.forward, forward);
  EXPECT_EQ(flops.per_sample(), 3 * forward);
  EXPECT_EQ(flops.per_s(100), 300 * forward);
  EXPECT_DOUBLE_EQ(flops.utilization(100), 300 * forward / 1e12);
  options.peak_tflops = 0;
  EXPECT_EQ(Of(options, *Images()).utilization(100), 0);
}

// Chunks leave the last product to the loss: it is the model's all the same.
TEST(JobFlopsTest, HowItIsComputedDoesNotMatter) {
  TrainOptions options;
  options.model = "gpt_tiny";
  const auto tokens = Tokens();
  const double whole = Of(options, *tokens).forward;
  options.loss_chunk = 8;
  EXPECT_EQ(Of(options, *tokens).forward, whole);
  options.vocab_parallel = 3;
  EXPECT_EQ(Of(options, *tokens).forward, whole);
  options.checkpoint_every = 2;
  EXPECT_EQ(Of(options, *tokens).forward, whole);
}

TEST(JobFlopsTest, ARegisteredModelIsCountedWhereItIsAskedFor) {
  const auto make = [](const ModelOptions&) -> absl::StatusOr<LayerSpecs> {
    return Mlp({256, 1, 0, 10});
  };
  ASSERT_EQ(RegisterModel("own", make), absl::OkStatus());
  TrainOptions options;
  options.model = "own";
  const JobFlops none = Of(options, *Images());
  EXPECT_EQ(none.per_s(100), 0);
  EXPECT_THAT(none.unknown, HasSubstr("give --peak_tflops"));
  options.peak_tflops = 1;
  EXPECT_EQ(Of(options, *Images()).forward, 2 * 256 * 10);
}

TEST(JobFlopsTest, WhyItIsNotKnownIsSaid) {
  TrainOptions options;
  options.model = "gpt_tiny";
  options.peak_tflops = 1;
  const JobFlops flops = Of(options, *Images());
  EXPECT_EQ(flops.utilization(100), 0);
  EXPECT_THAT(flops.unknown, HasSubstr("takes token numbers"));
}

}  // namespace
}  // namespace tandem::flops_test
