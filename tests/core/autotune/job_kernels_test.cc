#include "core/autotune/job_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/autotune/choice_file.h"
#include "core/base/status_macros.h"
#include "core/testing/thread_ranks.h"

namespace tandem::job_kernels_test {
namespace {

using testing::HasSubstr;

std::string CacheOf(const std::string& test, int rank) {
  return testing::TempDir() + "/" + test + std::to_string(getpid()) + "/" +
         std::to_string(rank);
}

// On each rank another one is the fastest.
std::vector<Kernel> KernelsOf(int rank) {
  std::vector<Kernel> kernels;
  for (int i = 0; i < 3; ++i) {
    kernels.push_back({std::to_string(i), [is_slow = i != rank] {
                         if (is_slow) {
                           std::this_thread::sleep_for(
                               std::chrono::milliseconds(2));
                         }
                       }});
  }
  return kernels;
}

TEST(JobKernelsTest, AllRanksHaveOneKernelForOneKey) {
  std::vector<std::vector<size_t>> picked(3);
  const absl::Status status =
      RunThreadRanks(3, [&](Communicator& world) -> absl::Status {
        const int rank = world.rank();
        KernelChoices choices;
        TANDEM_ASSIGN_OR_RETURN(
            const auto kernels,
            JobKernels::Measure(CacheOf("one", rank), world, choices));
        for (int key = 0; key < 10; ++key) {
          picked[rank].push_back(
              choices.Pick(std::to_string(key), KernelsOf(rank), 0));
        }
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(picked[1], picked[0]);
  EXPECT_EQ(picked[2], picked[0]);
}

TEST(JobKernelsTest, RankZerosFileDecidesForAll) {
  const absl::Status status =
      RunThreadRanks(3, [&](Communicator& world) -> absl::Status {
        const int rank = world.rank();
        const std::string cache = CacheOf("zero", rank);
        KernelChoices before;
        // In a job of its own each, so each has its own answer in its file.
        TANDEM_ASSIGN_OR_RETURN(
            const auto alone,
            world.Subgroup({rank}, "rank " + std::to_string(rank)));
        {
          TANDEM_ASSIGN_OR_RETURN(const auto kernels,
                                  JobKernels::Measure(cache, *alone, before));
          EXPECT_EQ(before.Pick("key", KernelsOf(rank), 0),
                    static_cast<size_t>(rank));
        }
        EXPECT_FALSE(before.measures());
        KernelChoices choices;
        TANDEM_ASSIGN_OR_RETURN(const auto kernels,
                                JobKernels::Measure(cache, world, choices));
        EXPECT_EQ(choices.Pick("key", KernelsOf(rank), 2), 0) << rank;
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
}

// By a rule of its own it would compute with other bits than they.
TEST(JobKernelsTest, WhoCannotKeepChoicesHasTheOthers) {
  const absl::Status status =
      RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
        const int rank = world.rank();
        KernelChoices choices;
        TANDEM_ASSIGN_OR_RETURN(
            const auto kernels,
            JobKernels::Measure(
                rank == 1 ? "/dev/null/kernels" : CacheOf("cannot", rank),
                world, choices));
        EXPECT_TRUE(choices.measures());
        // Each of them is the first to ask once.
        for (const int first : {0, 1}) {
          const std::string key = std::to_string(first);
          size_t picked = 0;
          if (rank == first) picked = choices.Pick(key, KernelsOf(rank), 2);
          TANDEM_RETURN_IF_ERROR(world.Barrier());
          if (rank != first) picked = choices.Pick(key, KernelsOf(rank), 2);
          EXPECT_EQ(picked, first) << rank;
        }
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
}

TEST(JobKernelsTest, WhereRankZeroCannotKeepChoicesNobodyMeasures) {
  const absl::Status status =
      RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
        const int rank = world.rank();
        KernelChoices choices;
        const auto kernels = JobKernels::Measure(
            rank == 0 ? "/dev/null/kernels" : CacheOf("nobody", rank), world,
            choices);
        EXPECT_THAT(std::string(kernels.status().message()),
                    HasSubstr("rank 0: cannot"));
        EXPECT_FALSE(choices.measures());
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
}

// The next run follows rank 0's file, and is to have what this one had.
TEST(JobKernelsTest, RankZerosFileKeepsWhatWasDecided) {
  const std::string cache = CacheOf("decided", 0);
  const absl::Status status =
      RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
        const int rank = world.rank();
        KernelChoices choices;
        TANDEM_ASSIGN_OR_RETURN(
            const auto kernels,
            JobKernels::Measure(rank == 0 ? cache : CacheOf("decided", 1),
                                world, choices));
        if (rank == 1) choices.Pick("key", KernelsOf(1), 0);
        TANDEM_RETURN_IF_ERROR(world.Barrier());
        EXPECT_EQ(choices.Pick("key", KernelsOf(rank), 0), 1) << rank;
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
  const Choices kept = *(*ChoiceFile::Open(cache))->Read();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept.begin()->second, "1");
}

TEST(JobKernelsTest, WithoutAPlaceToKeepChoicesNothingIsMeasured) {
  const absl::Status status =
      RunThreadRanks(1, [&](Communicator& world) -> absl::Status {
        KernelChoices choices;
        const auto kernels = JobKernels::Measure("", world, choices);
        EXPECT_EQ(kernels.status().code(),
                  absl::StatusCode::kFailedPrecondition);
        EXPECT_FALSE(choices.measures());
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace tandem::job_kernels_test
