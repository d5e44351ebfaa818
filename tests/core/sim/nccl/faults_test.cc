// Failures of simulated NCCL: abort is local, errors come by polling, and what
// is told of them is what is told of other backends.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "tests/core/sim/nccl/nccl_ranks.h"

namespace tandem {
namespace {

using c10d::Work;

c10::intrusive_ptr<Work> AllReduce(const NcclRank& rank) {
  std::vector<at::Tensor> tensors = {rank.Full(4, 1)};
  return rank.backend().allreduce(tensors);
}

// How long it takes the work to end; none within the patience.
bool EndsWithin(Work& work, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!work.isCompleted()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(NcclAbort, EndsThisRanksWorksAlone) {
  const absl::Status status =
      RunNcclRanks(3, [](const NcclRank& rank) -> absl::Status {
        // Rank 2 never comes.
        if (rank.rank == 2) return rank.world.Barrier();
        const auto work = AllReduce(rank);
        TANDEM_RETURN_IF_ERROR(
            Expect(!EndsWithin(*work, std::chrono::milliseconds(300)),
                   "a sum without rank 2"));
        if (rank.rank == 0) rank.backend().abort();
        TANDEM_RETURN_IF_ERROR(
            Expect(EndsWithin(*work, std::chrono::milliseconds(500)) ==
                       (rank.rank == 0),
                   "abort is local"));
        if (rank.rank == 1) rank.backend().abort();
        TANDEM_RETURN_IF_ERROR(
            Expect(EndsWithin(*work, std::chrono::seconds(10)) &&
                       work->exception() != nullptr && !work->isSuccess(),
                   "an error, by polling"));
        const absl::Status later = CatchTorch([&] { AllReduce(rank)->wait(); });
        TANDEM_RETURN_IF_ERROR(
            Expect(later.message().find("was aborted") != std::string::npos,
                   std::string(later.message())));
        return rank.world.Barrier();
      });
  EXPECT_TRUE(status.ok()) << status;
}

// The stream goes on behind what was aborted, as a GPU's does.
TEST(NcclAbort, LetsTheDeviceGoOn) {
  const absl::Status status =
      RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
        if (rank.rank == 1) return rank.world.Barrier();
        at::Tensor values = rank.Full(4, 1);
        RunTwice([&] { values.add_(0); });
        std::vector<at::Tensor> tensors = {values};
        const auto work = rank.backend().allreduce(tensors);
        work->wait();
        values.add_(1);
        rank.backend().abort();
        TANDEM_RETURN_IF_ERROR(
            Expect(values.cpu().numel() == 4, "the device has ended"));
        return rank.world.Barrier();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(NcclTimeout, NamesWhoDidNotCome) {
  std::vector<absl::Status> seen(3);
  const absl::Status status = RunNcclRanks(
      3,
      [&](const NcclRank& rank) -> absl::Status {
        if (rank.rank != 1) {
          TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(
              rank.Full(4, 1), [] { return "bucket 0 of step 4"; }));
          seen[static_cast<size_t>(rank.rank)] = rank.group.Synchronize();
        }
        std::this_thread::sleep_for(std::chrono::seconds(6));
        return absl::OkStatus();
      },
      /*timeout=*/3);
  EXPECT_TRUE(status.ok()) << status;
  for (int rank : {0, 2}) {
    const std::string text(seen[static_cast<size_t>(rank)].message());
    EXPECT_NE(
        text.find("all-reduce #1 (bucket 0 of step 4) of group \"group\""),
        std::string::npos)
        << text;
    EXPECT_NE(text.find("not heard of: rank 1"), std::string::npos) << text;
  }
}

// Who gives up tells the others, whose streams end.
TEST(NcclTimeout, AGroupThatIsGivenUpEndsEverywhere) {
  using Clock = std::chrono::steady_clock;
  absl::Status seen;
  const Clock::time_point begin = Clock::now();
  const absl::Status status =
      RunNcclRanks(2, [&](const NcclRank& rank) -> absl::Status {
        if (rank.rank == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          rank.group.Abort(absl::DataLossError("the disk is full"));
          return rank.world.Barrier();
        }
        TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(rank.Full(4, 1)));
        seen = rank.group.Synchronize();
        return rank.world.Barrier();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_NE(seen.message().find("rank 1 gave up: the disk is full"),
            std::string::npos)
      << seen;
  // Not by timeout.
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
}

}  // namespace
}  // namespace tandem
