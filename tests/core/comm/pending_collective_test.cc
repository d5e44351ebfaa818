#include "core/comm/pending_collective.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/background_gather.h"
#include "core/comm/communicator.h"
#include "core/comm/partitioned_collectives.h"
#include "core/device/host_memory.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"

namespace tandem::pending_collective_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Clock = PendingCollective::Clock;

TEST(PendingCollectiveTest, OneWithNothingToDoIsDone) {
  PendingCollective pending;
  EXPECT_TRUE(pending.Wait().ok());
  EXPECT_EQ(pending.started(), Clock::time_point());
  EXPECT_EQ(pending.ended(), Clock::time_point());
}

TEST(PendingCollectiveTest, SeveralRunAtOnceAndAreWaitedForInAnyOrder) {
  ExpectOk(RunThreadRanks(3, [](Communicator& world) -> absl::Status {
    std::vector<at::Tensor> tensors;
    std::vector<PendingCollective> pending;
    for (int i = 0; i < 7; ++i) {
      tensors.push_back(at::full({997}, 1.0 + i + world.rank()));
      TANDEM_ASSIGN_OR_RETURN(
          pending.emplace_back(),
          world.StartAllReduceSum(tensors.back(), /*factor=*/0.5));
    }
    for (int i = 6; i >= 0; --i) {
      TANDEM_RETURN_IF_ERROR(pending[i].Wait());
      EXPECT_EQ(tensors[i][996].item<double>(), (3 * (1.0 + i) + 3) / 2);
      EXPECT_TRUE(pending[i].Wait().ok()) << "a second time";
    }
    return absl::OkStatus();
  }));
}

TEST(PendingCollectiveTest, ItsEndIsWhenItCompletedAndNotWhenItWasWaitedFor) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) -> absl::Status {
    const auto before = Clock::now();
    at::Tensor tensor = at::full({997}, 1.0);
    TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                            world.StartAllReduceSum(tensor));
    // The barrier comes after it, and so it is complete: which another
    // thread notes, perhaps a moment later.
    TANDEM_RETURN_IF_ERROR(world.Barrier());
    EXPECT_TRUE(AwaitOtherRanks(
        [&] { return pending.ended() != Clock::time_point(); }));
    const auto later = Clock::now() + std::chrono::milliseconds(20);
    std::this_thread::sleep_until(later);
    TANDEM_RETURN_IF_ERROR(pending.Wait());
    EXPECT_LE(before, pending.started());
    EXPECT_LE(pending.started(), pending.ended());
    EXPECT_LT(pending.ended(), later);
    return absl::OkStatus();
  }));
}

TEST(PendingCollectiveTest, OneThatIsDroppedRunsOn) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) -> absl::Status {
    at::Tensor tensor = at::full({997}, 1.0);
    TANDEM_RETURN_IF_ERROR(world.StartAllReduceSum(tensor).status());
    TANDEM_RETURN_IF_ERROR(world.Barrier());
    EXPECT_EQ(tensor[0].item<double>(), 2);
    return absl::OkStatus();
  }));
}

TEST(PendingCollectiveTest, ThePurposeIsRenderedOnlyForAMessage) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(2);
  int rendered[2] = {0, 0};
  const absl::Status status = RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        const CollectivePurpose purpose = [&] {
          ++rendered[world.rank()];
          return std::string("bucket 1 (fc.weight) of step 4");
        };
        at::Tensor tensor = at::full({5}, 1.0);
        TANDEM_RETURN_IF_ERROR(world.AllReduceSum(tensor, purpose));
        TANDEM_RETURN_IF_ERROR(world.Broadcast(tensor, 0, purpose));
        TANDEM_RETURN_IF_ERROR(world.AllGather(tensor, purpose).status());
        TANDEM_RETURN_IF_ERROR(world.Barrier(purpose));
        EXPECT_EQ(rendered[world.rank()], 0);
        if (world.rank() == 1) return absl::OkStatus();
        const absl::Status failed = world.AllReduceSum(tensor, purpose);
        EXPECT_THAT(failed.message(),
                    AllOf(HasSubstr("all-reduce #5 (bucket 1 (fc.weight) of "
                                    "step 4) of group \"world\""),
                          HasSubstr("not heard of: rank 1")));
        return failed;
      },
      options);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(rendered[0], 1);
}

constexpr milliseconds kLong = std::chrono::minutes(1);

// While the main thread issues collectives in an order of its own.
TEST(BackgroundGatherTest, EveryRankGetsAllTextsInEveryRound) {
  for (const int size : {1, 2, 7}) {
    ExpectOk(RunThreadRanks(size, [&](Communicator& world) {
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
    }));
  }
}

TEST(BackgroundGatherTest, WhoDoesNotComeIsNamed) {
  ExpectOk(RunThreadRanks(3, [](Communicator& world) {
    // For as long as the other two need to meet on a busy machine.
    BackgroundGather gather(world, "test", std::chrono::seconds(2));
    gather.BeginRound();
    if (world.rank() != 1) {
      EXPECT_THAT(gather.Gather("").status(),
                  StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 1"));
    }
    return world.Barrier();
  }));
}

TEST(BackgroundGatherTest, GivesUpWhenItIsStopped) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) {
    BackgroundGather gather(world, "test", kLong);
    gather.BeginRound();
    if (world.rank() == 0) {
      gather.Stop();
      EXPECT_EQ(gather.Gather("").status().code(),
                absl::StatusCode::kCancelled);
    }
    return world.Barrier();
  }));
}

TEST(BackgroundGatherTest, EndsWithTheReasonOfARankThatFails) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) {
    BackgroundGather gather(world, "test", kLong);
    gather.BeginRound();
    if (world.rank() == 1) {
      world.Abort(absl::InternalError("the reason"));
      return absl::OkStatus();
    }
    EXPECT_THAT(gather.Gather("").status(),
                StatusIs(absl::StatusCode::kAborted, "the reason"));
    return absl::OkStatus();
  }));
}

// Tensors of a device that no backend reaches, by way of the host's memory: as
// those of a GPU that ranks share. Simulated devices stand for it, whose memory
// is kept from the backends.

class StagedTensorsTest : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    device_ = SimDevices(1)[0];
    RegisterHostMemory(device_.type(), nullptr);
  }

  // All ranks' tensors lie on one device.
  static at::Tensor Full(double value, c10::ScalarType type = at::kFloat) {
    return at::full({7, 3}, value, at::device(device_).dtype(type));
  }

  static void OnRanks(int n,
                      const std::function<absl::Status(Communicator&)>& fn) {
    CommunicatorOptions options;
    options.backend = GetParam();
    options.stages_on_host = true;
    ExpectOk(RunThreadRanks(n, fn, options));
  }

  static void ExpectAll(const at::Tensor& tensor, double value) {
    EXPECT_EQ(tensor.device(), device_);
    EXPECT_TRUE(tensor.cpu().eq(value).all().item<bool>()) << tensor.cpu();
  }

  static c10::Device device_;
};

c10::Device StagedTensorsTest::device_(c10::DeviceType::CPU);

TEST_P(StagedTensorsTest, SumsReachTheDevice) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    const at::Tensor sum = Full(world.rank() + 1);
    TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                            world.StartAllReduceSum(sum, /*factor=*/0.5));
    TANDEM_RETURN_IF_ERROR(pending.Wait());
    ExpectAll(sum, 3);
    EXPECT_TRUE(pending.Wait().ok()) << "a second time";
    const at::Tensor at_root = Full(world.rank());
    TANDEM_ASSIGN_OR_RETURN(PendingCollective reduced,
                            world.StartReduceSum(at_root, /*root=*/2));
    TANDEM_RETURN_IF_ERROR(reduced.Wait());
    if (world.rank() == 2) ExpectAll(at_root, 3);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, EachRanksTensorReachesTheOthers) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    const at::Tensor roots = Full(world.rank() + 5, at::kLong);
    TANDEM_RETURN_IF_ERROR(world.Broadcast(roots, /*root=*/1));
    ExpectAll(roots, 6);
    TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all,
                            world.AllGather(Full(world.rank(), at::kBFloat16)));
    for (int rank = 0; rank < 2; ++rank) ExpectAll(all[rank], rank);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, PartsReachTheDevice) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    const auto wait = [](absl::StatusOr<PendingCollective> started) {
      return started.ok() ? started->Wait() : started.status();
    };
    const at::Tensor all = Full(-1).view({-1});  // 21 elements
    const at::Tensor inside = all.narrow(0, 7 * world.rank(), 7);
    const at::Tensor apart = Full(0).view({-1}).narrow(0, 0, 7);
    inside.fill_(4);
    TANDEM_RETURN_IF_ERROR(wait(StartAllGather(world, all, inside)));
    ExpectAll(all, 4);
    TANDEM_RETURN_IF_ERROR(
        wait(StartReduceScatterSum(world, all, apart, /*factor=*/0.5)));
    ExpectAll(apart, 6);
    ExpectAll(all, 4);
    TANDEM_RETURN_IF_ERROR(wait(StartReduceScatterSum(world, all, inside)));
    ExpectAll(inside, 12);
    const at::Tensor received = Full(0).view({-1});
    TANDEM_RETURN_IF_ERROR(
        wait(StartAllToAll(world, received, Full(world.rank()).view({-1}))));
    for (int rank = 0; rank < 3; ++rank) {
      ExpectAll(received.narrow(0, 7 * rank, 7), rank);
    }
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, MessagesArriveOnTheDevice) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    const int other = 1 - world.rank();
    const at::Tensor mine = Full(world.rank() + 1);
    const at::Tensor received = Full(0);
    const std::vector<RankMessage> messages = {
        {/*sends=*/true, mine, other, /*tag=*/0},
        {/*sends=*/false, received, other, /*tag=*/0}};
    TANDEM_ASSIGN_OR_RETURN(PendingCollective exchanged,
                            world.StartMessages(messages));
    TANDEM_RETURN_IF_ERROR(exchanged.Wait());
    ExpectAll(received, other + 1);
    ExpectAll(mine, world.rank() + 1);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, SubgroupsDoAsTheirWhole) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto group, world.Subgroup({1, 0}, "turned"));
    const at::Tensor sum = Full(1);
    TANDEM_RETURN_IF_ERROR(group->AllReduceSum(sum));
    ExpectAll(sum, 2);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, AreRefusedUnlessTheyAreAskedFor) {
  CommunicatorOptions options;
  options.backend = GetParam();
  EXPECT_THAT(
      RunThreadRanks(
          2, [](Communicator& world) { return world.AllReduceSum(Full(1)); },
          options),
      InvalidArgument("does not take Float on sim:0"));
}

INSTANTIATE_TEST_SUITE_P(Backends, StagedTensorsTest,
                         testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::pending_collective_test
