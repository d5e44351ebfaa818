// Failures of simulated NCCL: abort is local, errors come by polling, and what
// is told of them is what is told of other backends.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/sim/nccl/nccl_ranks.h"
#include "tests/core/testing/log_lines.h"
#include "tests/core/testing/process_testing.h"

namespace tandem::faults_test {
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
  ExpectOk(RunNcclRanks(3, [](const NcclRank& rank) -> absl::Status {
    // Rank 2 never comes.
    if (rank.rank == 2) return rank.world.Barrier();
    const auto work = AllReduce(rank);
    TANDEM_RETURN_IF_ERROR(
        Expect(!EndsWithin(*work, std::chrono::milliseconds(300)),
               "a sum without rank 2"));
    if (rank.rank == 0) rank.backend().abort();
    if (rank.rank == 1) {
      TANDEM_RETURN_IF_ERROR(
          Expect(!EndsWithin(*work, std::chrono::milliseconds(500)),
                 "abort is local"));
      rank.backend().abort();
    }
    TANDEM_RETURN_IF_ERROR(Expect(EndsWithin(*work, std::chrono::seconds(10)) &&
                                      work->exception() != nullptr &&
                                      !work->isSuccess(),
                                  "an error, by polling"));
    const absl::Status later = CatchTorch([&] { AllReduce(rank)->wait(); });
    TANDEM_RETURN_IF_ERROR(
        Expect(later.message().find("was aborted") != std::string::npos,
               std::string(later.message())));
    return rank.world.Barrier();
  }));
}

// The stream goes on behind what was aborted, as a GPU's does.
TEST(NcclAbort, LetsTheDeviceGoOn) {
  ExpectOk(RunNcclRanks(2, [](const NcclRank& rank) -> absl::Status {
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
  }));
}

// Or c10d's watchdog would meet a context of CUDA that is being torn down.
TEST(NcclShutdown, EndsAGroupThatIsWhole) {
  LogLines logs;
  ExpectOk(RunNcclRanks(3, [](const NcclRank& rank) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(rank.Full(4, 1)));
    return rank.group.Synchronize();
  }));
  for (const std::string& line : logs.lines()) {
    EXPECT_EQ(line.find("was not shut down"), std::string::npos) << line;
  }
}

TEST(NcclTimeout, NamesWhoDidNotCome) {
  std::vector<absl::Status> seen(3);
  std::atomic<int> gave_up{0};
  ExpectOk(RunNcclRanks(
      3,
      [&](const NcclRank& rank) -> absl::Status {
        if (rank.rank != 1) {
          TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(
              rank.Full(4, 1), [] { return "bucket 0 of step 4"; }));
          seen[static_cast<size_t>(rank.rank)] = rank.group.Synchronize();
          ++gave_up;
        }
        // None leaves before, which would be another end.
        return Expect(AwaitOtherRanks([&] { return gave_up == 2; }),
                      "ranks 0 and 2 give up");
      },
      /*timeout=*/3));
  for (int rank : {0, 2}) {
    const std::string text(seen[static_cast<size_t>(rank)].message());
    EXPECT_NE(
        text.find("all-reduce #1 (bucket 0 of step 4) of group \"group\""),
        std::string::npos)
        << text;
    EXPECT_NE(text.find("not heard of: rank 1"), std::string::npos) << text;
  }
}

// A rank that gives up tells the others, whose streams end.
TEST(NcclTimeout, AGroupThatIsGivenUpEndsEverywhere) {
  using Clock = std::chrono::steady_clock;
  absl::Status seen;
  const Clock::time_point begin = Clock::now();
  ExpectOk(RunNcclRanks(2, [&](const NcclRank& rank) -> absl::Status {
    if (rank.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      rank.group.Abort(absl::DataLossError("the disk is full"));
      return rank.world.Barrier();
    }
    TANDEM_RETURN_IF_ERROR(rank.group.AllReduceSum(rank.Full(4, 1)));
    seen = rank.group.Synchronize();
    return rank.world.Barrier();
  }));
  EXPECT_NE(seen.message().find("rank 1 gave up: the disk is full"),
            std::string::npos)
      << seen;
  // Not by timeout.
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
}

Launch JobOnFreePort(int ranks) {
  Launch launch;
  launch.world_size = launch.local_world_size = ranks;
  launch.rendezvous.kind = Rendezvous::Kind::kTcp;
  launch.rendezvous.host = "127.0.0.1";
  launch.rendezvous.port = FreePort();
  return launch;
}

// Three ranks, a communicator for each pair. Rank 2 gives up what it has with
// rank 0, while rank 0 waits for rank 1 and rank 1 for rank 2; when these have
// `ended`, rank 2 waits for rank 1.
absl::Status GiveUpOneOfThree(Launch launch, int rank,
                              std::atomic<int>* ended) {
  launch.rank = rank;
  CommunicatorOptions options;
  options.backend = "sim_nccl";
  options.timeout = std::chrono::minutes(2);
  TANDEM_ASSIGN_OR_RETURN(const auto world,
                          Communicator::ForLaunch(launch, options));
  SubgroupOptions own;
  own.device = SimDevice(rank);
  std::map<std::pair<int, int>, std::unique_ptr<Communicator>> pairs;
  for (const auto& [a, b] : {std::pair(0, 1), {0, 2}, {1, 2}}) {
    if (rank != a && rank != b) continue;
    TANDEM_ASSIGN_OR_RETURN((pairs[{a, b}]),
                            world->Subgroup({a, b}, "pair", own));
  }
  // Until all have all of theirs, whose making would end by the failure, too.
  TANDEM_RETURN_IF_ERROR(world->Barrier());
  const auto waits_in = [&](std::pair<int, int> pair) {
    const NcclRank mine = {*world, *pairs.at(pair), rank, *own.device};
    TANDEM_RETURN_IF_ERROR(mine.group.AllReduceSum(mine.Full(4, 1)));
    return mine.group.Synchronize();
  };
  if (rank == 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    pairs.at({0, 2})->Abort(absl::DataLossError("the disk is full"));
    TANDEM_RETURN_IF_ERROR(Expect(AwaitOtherRanks([&] { return *ended == 2; }),
                                  "ranks 0 and 1 end"));
  }
  const absl::Status seen =
      waits_in(rank == 0 ? std::pair(0, 1) : std::pair(1, 2));
  if (rank != 2) ++*ended;
  TANDEM_RETURN_IF_ERROR(Expect(!seen.ok(), "an end"));
  // Groups in which nobody waits have ended, too.
  for (const auto& [ranks, group] : pairs) {
    const absl::Status later = CatchTorch([&, &group = group] {
      AllReduce({*world, *group, rank, *own.device})->wait();
    });
    TANDEM_RETURN_IF_ERROR(
        Expect(later.message().find("was aborted") != std::string::npos,
               std::string(later.message())));
  }
  return absl::OkStatus();
}

TEST(NcclJob, OneFailedCommunicatorAbortsAllOfAllRanksWithinSeconds) {
  using Clock = std::chrono::steady_clock;
  SimDevices(3);
  const Launch launch = JobOnFreePort(3);
  const Clock::time_point begin = Clock::now();
  std::vector<absl::Status> ends(3);
  std::atomic<int> ended{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(
        [&, rank] { ends[rank] = GiveUpOneOfThree(launch, rank, &ended); });
  }
  for (std::thread& each : ranks) each.join();
  for (const absl::Status& each : ends) EXPECT_TRUE(each.ok()) << each;
  // Not by timeout.
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace tandem::faults_test
