#include "parallel/step/batch_shares.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/schedule/schedules.h"

namespace tandem::batch_shares_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MeshStrategyOptions Options(int microbatches) {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule("1f1b", {1, 1, microbatches});
  options.seed = 11;
  return options;
}

Batch BatchOf(int64_t size) {
  return {at::arange(size, at::kFloat).reshape({size, 1}),
          at::zeros({size}, at::kLong), size};
}

std::vector<int64_t> SizesOf(const std::vector<Batch>& batches) {
  std::vector<int64_t> sizes;
  for (const Batch& each : batches) sizes.push_back(each.size);
  return sizes;
}

TEST(BatchSharesTest, MicrobatchesAreOfOneSizeOrDifferByOne) {
  const MeshStrategyOptions options = Options(3);
  const MeshGroups alone;
  BatchShares shares(options, CrossEntropy, alone);
  ASSERT_TRUE(shares.ExchangeSizes(7).ok());
  const auto seven = shares.Microbatches(BatchOf(7));
  ASSERT_TRUE(seven.ok()) << seven.status();
  EXPECT_THAT(SizesOf(*seven), ElementsAre(3, 2, 2));
  EXPECT_EQ(shares.MicrobatchesOf(0), 3);
  const auto two = shares.Microbatches(BatchOf(2));
  EXPECT_THAT(two.status(),
              Says("a batch of 2 samples gives 2 microbatches, but "
                   "schedule 1f1b has 3"));
}

TEST(BatchSharesTest, AnUnevenStepHasAsManyAsItsSamplesGive) {
  MeshStrategyOptions options = Options(4);
  options.uneven_batches = true;
  options.microbatch_size = 2;
  const MeshGroups alone;
  BatchShares shares(options, CrossEntropy, alone);
  ASSERT_TRUE(shares.ExchangeSizes(5).ok());
  const auto parts = shares.Microbatches(BatchOf(5));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(SizesOf(*parts), ElementsAre(2, 2, 1));
  EXPECT_EQ(shares.MicrobatchesOf(0), 3);
  EXPECT_THAT(shares.ExchangeSizes(0), Says("needs at least one sample"));
}

// Three replicas of 4, 1 and 0 samples: the last one begins where the others
// end, and a microbatch weighs its part of the mean over replicas.
TEST(BatchSharesTest, ReplicasStandBehindEachOther) {
  ExpectOk(RunThreadRanks(3, [](Communicator& world) -> absl::Status {
    MeshStrategyOptions options = Options(2);
    options.uneven_batches = true;
    options.microbatch_size = 2;
    auto groups = MeshGroups::Create(&world, *Mesh::Create(3, 1),
                                     {{0, c10::Device(c10::kCPU)}});
    if (!groups.ok()) return groups.status();
    BatchShares shares(options, CrossEntropy, *groups);
    const std::vector<int64_t> sizes = {4, 1, 0};
    const auto rank = static_cast<size_t>(world.rank());
    const absl::Status learnt = shares.ExchangeSizes(sizes[rank]);
    if (!learnt.ok()) return learnt;
    const auto parts = shares.Microbatches(BatchOf(sizes[rank]));
    if (!parts.ok()) return parts.status();
    const auto samples = shares.SamplesOfStep(*parts, /*step=*/9);
    if (!samples.ok()) return samples.status();
    EXPECT_EQ(samples->samples->seed, 11u);
    EXPECT_EQ(samples->samples->step, 9);
    EXPECT_EQ(samples->samples->first, std::vector<int64_t>({0, 4, 5})[rank]);
    EXPECT_DOUBLE_EQ(samples->of, 5.0 / 3);
    EXPECT_THAT(samples->loss_parts, IsEmpty());
    EXPECT_EQ(shares.MicrobatchesOf(0), 2);
    EXPECT_EQ(shares.MicrobatchesOf(1), 1);
    EXPECT_EQ(shares.MicrobatchesOf(2), 0);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::batch_shares_test
