#include "core/comm/background_gather.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::background_gather_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr milliseconds kLong = std::chrono::minutes(1);

// While the main thread issues collectives in an order of its own.
TEST(BackgroundGatherTest, EveryRankGetsAllTextsInEveryRound) {
  for (const int size : {1, 2, 7}) {
    const absl::Status status = RunThreadRanks(size, [&](Communicator& world) {
      BackgroundGather gather(world, "test", kLong);
      for (int round = 0; round < 4; ++round) {
        gather.BeginRound();
        std::vector<std::vector<std::string>> got;
        std::thread behind([&] {
          for (int i = 0; i < 3; ++i) {
            const auto all =
                gather.Gather(absl::StrCat(round, i, world.rank()));
            if (all.ok()) got.push_back(*all);
          }
        });
        const absl::Status met = world.Barrier();
        behind.join();
        TANDEM_RETURN_IF_ERROR(met);
        EXPECT_EQ(got.size(), 3u);
        for (size_t i = 0; i < got.size(); ++i) {
          std::vector<std::string> expected;
          for (int rank = 0; rank < size; ++rank) {
            expected.push_back(absl::StrCat(round, i, rank));
          }
          EXPECT_THAT(got[i], ElementsAreArray(expected));
        }
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(BackgroundGatherTest, WhoDoesNotComeIsNamed) {
  const absl::Status status = RunThreadRanks(3, [](Communicator& world) {
    // For as long as the other two need to meet on a busy machine.
    BackgroundGather gather(world, "test", std::chrono::seconds(2));
    gather.BeginRound();
    if (world.rank() != 1) {
      const absl::Status late = gather.Gather("").status();
      EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
      EXPECT_THAT(std::string(late.message()), HasSubstr("rank 1"));
    }
    return world.Barrier();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(BackgroundGatherTest, GivesUpWhenItIsStopped) {
  const absl::Status status = RunThreadRanks(2, [](Communicator& world) {
    BackgroundGather gather(world, "test", kLong);
    gather.BeginRound();
    if (world.rank() == 0) {
      gather.Stop();
      EXPECT_EQ(gather.Gather("").status().code(),
                absl::StatusCode::kCancelled);
    }
    return world.Barrier();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(BackgroundGatherTest, EndsWithTheReasonOfARankThatFails) {
  const absl::Status status = RunThreadRanks(2, [](Communicator& world) {
    BackgroundGather gather(world, "test", kLong);
    gather.BeginRound();
    if (world.rank() == 1) {
      world.Abort(absl::InternalError("the reason"));
      return absl::OkStatus();
    }
    const absl::Status failed = gather.Gather("").status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kAborted) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("the reason"));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace tandem::background_gather_test
