// Numbers of a step: its score, sums of losses, and replicas' shares of a
// batch.

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/schedule/schedules.h"
#include "parallel/step/loss_sums.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/step_score.h"

namespace tandem::step_numbers_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(ScoreNumbersTest, SumsOfNumbersAreSumsOfScores) {
  const Score a = {1.5, 2, 7};
  const Score b = {0.25, 1, 4};
  double first[kScoreNumbers], second[kScoreNumbers];
  ToNumbers(a, first);
  ToNumbers(b, second);
  for (int i = 0; i < kScoreNumbers; ++i) first[i] += second[i];
  Score sum = a;
  sum += b;
  const Score found = ScoreFromNumbers(first);
  EXPECT_EQ(found.loss_sum, sum.loss_sum);
  EXPECT_EQ(found.correct, sum.correct);
  EXPECT_EQ(found.count, sum.count);
}

TEST(LossSumsTest, AddUpPartsOfOneRank) {
  LossSums sums;
  EXPECT_THAT(sums.sums(), IsEmpty());
  ASSERT_TRUE(sums.Sum({}, 3, nullptr).ok());
  EXPECT_THAT(sums.sums(), IsEmpty());
  ASSERT_TRUE(
      sums.Sum({{"b", 2, 1}, {"a", 0, 4}, {"b", 2, 2}, {"b", 0, 8}}, 3, nullptr)
          .ok());
  EXPECT_THAT(sums.sums(), ElementsAre(Pair("a", 4), Pair("b", 11)));
  ASSERT_TRUE(sums.Sum({{"a", 1, 5}}, 3, nullptr).ok());
  EXPECT_THAT(sums.sums(), ElementsAre(Pair("a", 5)));
}

// 1e17 + 9 + 9 depends on the order.
TEST(LossSumsTest, AreInTheOrderOfMicrobatches) {
  LossSums one;
  ASSERT_TRUE(
      one.Sum({{"a", 2, 9}, {"a", 1, 9}, {"a", 0, 1e17}}, 3, nullptr).ok());
  EXPECT_EQ(one.sums().at("a"), (1e17 + 9) + 9);
  EXPECT_NE(one.sums().at("a"), 1e17 + 18);
}

TEST(LossSumsTest, EveryRankHasAllNamesAndTheSameSums) {
  ExpectOk(RunThreadRanks(3, [](Communicator& world) -> absl::Status {
    LossSums sums;
    for (int step = 0; step < 2; ++step) {
      std::vector<LossSums::Part> parts;
      if (world.rank() < 2) parts.push_back({"first", world.rank(), 1});
      if (world.rank() == 2) parts.push_back({"last", 2, 4});
      TANDEM_RETURN_IF_ERROR(sums.Sum(parts, 3, &world));
      EXPECT_THAT(sums.sums(), ElementsAre(Pair("first", 2), Pair("last", 4)));
    }
    // A step may lack some, or all.
    TANDEM_RETURN_IF_ERROR(sums.Sum({}, 3, &world));
    EXPECT_THAT(sums.sums(), ElementsAre(Pair("first", 0), Pair("last", 0)));
    return absl::OkStatus();
  }));
}

TEST(LossSumsTest, ANameThatComesLaterIsRefused) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) -> absl::Status {
    LossSums sums;
    TANDEM_RETURN_IF_ERROR(sums.Sum({{"a", 0, 1}}, 1, &world));
    EXPECT_THAT(sums.Sum({{"b", 0, 1}}, 1, &world),
                Says("loss b was not there in the first step"));
    return absl::OkStatus();
  }));
}

// What one rank adds while it is alone is nothing that the others wait for.
TEST(LossSumsTest, StepsApartLeaveTheCommonNamesAlone) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) -> absl::Status {
    LossSums sums;
    if (world.rank() == 1) {
      TANDEM_RETURN_IF_ERROR(sums.Sum({{"early", 1, 5}}, 2, nullptr));
    }
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(
          sums.Sum({{"common", world.rank(), 1}}, 2, &world));
      EXPECT_THAT(sums.sums(), ElementsAre(Pair("common", 2)));
      if (world.rank() == 0) continue;
      TANDEM_RETURN_IF_ERROR(sums.Sum({{"own", 1, 3}}, 2, nullptr));
      EXPECT_THAT(sums.sums(), ElementsAre(Pair("common", 0), Pair("own", 3)));
    }
    return absl::OkStatus();
  }));
}

// A replica of two ranks, and both of its replicas.
TEST(LossSumsTest, EachGroupAgreesOnItsNames) {
  ExpectOk(RunThreadRanks(4, [](Communicator& world) -> absl::Status {
    const int first = world.rank() / 2 * 2;
    TANDEM_ASSIGN_OR_RETURN(
        const auto pipe,
        world.Subgroup({first, first + 1}, absl::StrCat("pipe ", first)));
    LossSums sums;
    std::vector<LossSums::Part> parts;
    if (world.rank() == 3) parts.push_back({"last", 3, 7});
    for (Communicator* group : {pipe.get(), &world, pipe.get()}) {
      TANDEM_RETURN_IF_ERROR(sums.Sum(parts, 4, group));
      const bool has = group == &world || first == 2;
      EXPECT_EQ(sums.sums().size(), has ? 1u : 0u);
      if (has) EXPECT_EQ(sums.sums().at("last"), 7);
    }
    return absl::OkStatus();
  }));
}

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
  EXPECT_EQ(shares.ReplicaMicrobatches(0), 3);
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
  EXPECT_EQ(shares.ReplicaMicrobatches(0), 3);
  EXPECT_THAT(shares.ExchangeSizes(0), Says("needs at least one sample"));
}

// Three replicas of 4, 1 and 0 samples: the last one begins where the others
// end, and a microbatch weighs its part of the mean over replicas.
TEST(BatchSharesTest, ReplicasStandBehindEachOther) {
  ExpectOk(RunThreadRanks(3, [](Communicator& world) -> absl::Status {
    MeshStrategyOptions options = Options(2);
    options.uneven_batches = true;
    options.microbatch_size = 2;
    auto groups = MeshGroups::Create(&world, *Mesh::Create(3, {}),
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
    EXPECT_EQ(shares.ReplicaMicrobatches(0), 2);
    EXPECT_EQ(shares.ReplicaMicrobatches(1), 1);
    EXPECT_EQ(shares.ReplicaMicrobatches(2), 0);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::step_numbers_test
