#include "tools/examples/example_program.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <functional>
#include <vector>

#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kRanks = 3;

ExampleOptions WithBatchSize(int64_t batch_size) {
  ExampleOptions options;
  options.batch_size = batch_size;
  return options;
}

void OnRanks(int ranks, const ExampleOptions& options,
             const std::function<absl::Status(const ExampleRank&)>& body) {
  ExpectOk(RunThreadRanks(ranks, [&](Communicator& world) -> absl::Status {
    return body({options, world, {c10::Device(c10::kCPU)}});
  }));
}

TEST(ExampleProgramTest, WeightsThatDifferAreAnErrorThatNamesTheRank) {
  OnRanks(kRanks, {}, [](const ExampleRank& rank) {
    const float value = rank.rank() == 2 ? 1 : 0;
    const auto common =
        CommonFingerprint(rank, {{"weight", at::full({3}, value)}});
    EXPECT_THAT(common.status(),
                StatusIs(absl::StatusCode::kInternal,
                         "weights of rank 2 differ from rank 0's"));
    return absl::OkStatus();
  });
}

TEST(ExampleProgramTest, WeightsThatAreTheSameHaveOneFingerprint) {
  OnRanks(kRanks, {}, [](const ExampleRank& rank) {
    const auto common = CommonFingerprint(rank, {{"weight", at::full({3}, 1)}});
    EXPECT_TRUE(common.ok()) << common.status();
    EXPECT_EQ(common->size(), 64);
    return absl::OkStatus();
  });
}

TEST(ExampleProgramTest, RanksHaveConsecutiveRowsOfWhatOneRankHas) {
  std::vector<ExampleSamples> shares(kRanks);
  OnRanks(kRanks, WithBatchSize(5), [&](const ExampleRank& rank) {
    shares[rank.rank()] = MakeExampleSamples(rank);
    return absl::OkStatus();
  });
  OnRanks(1, WithBatchSize(5 * kRanks), [&](const ExampleRank& rank) {
    const ExampleSamples all = MakeExampleSamples(rank);
    std::vector<at::Tensor> inputs, labels;
    for (const ExampleSamples& share : shares) {
      EXPECT_EQ(share.inputs.sizes(), (std::vector<int64_t>{5, 10}));
      EXPECT_EQ(share.labels.sizes(), (std::vector<int64_t>{5, 5}));
      inputs.push_back(share.inputs);
      labels.push_back(share.labels);
    }
    EXPECT_TRUE(at::cat(inputs).equal(all.inputs));
    EXPECT_TRUE(at::cat(labels).equal(all.labels));
    EXPECT_FALSE(shares[0].inputs.equal(shares[1].inputs));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace tandem
