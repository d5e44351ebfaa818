// Messages from rank to rank, through every backend.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/thread_ranks.h"

namespace tandem::communicator_messages_test {
namespace {

using testing::HasSubstr;

class CommunicatorMessagesTest : public testing::TestWithParam<std::string> {
 protected:
  static CommunicatorOptions Options() {
    CommunicatorOptions options;
    options.backend = GetParam();
    options.all_local = true;
    options.timeout = std::chrono::seconds(20);
    return options;
  }
};

absl::Status Send(Communicator& group, const at::Tensor& tensor, int to,
                  int tag) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                          group.StartSend(tensor, to, tag));
  return sent.Wait();
}

absl::Status Receive(Communicator& group, const at::Tensor& tensor, int from,
                     int tag) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective coming,
                          group.StartReceive(tensor, from, tag));
  return coming.Wait();
}

TEST_P(CommunicatorMessagesTest, AreMatchedByTagAndThenByOrder) {
  const absl::Status status = RunThreadRanks(
      3,
      [](Communicator& world) -> absl::Status {
        const int next = (world.rank() + 1) % 3;
        const int before = (world.rank() + 2) % 3;
        std::vector<PendingCollective> sent;
        for (int i = 0; i < 4; ++i) {
          TANDEM_ASSIGN_OR_RETURN(
              PendingCollective one,
              world.StartSend(at::full({5}, 10 * world.rank() + i), next,
                              /*tag=*/i / 2));
          sent.push_back(std::move(one));
        }
        for (int i : {2, 0, 3, 1}) {
          const at::Tensor got = at::zeros({5}, at::kLong);
          TANDEM_RETURN_IF_ERROR(Receive(world, got, before, i / 2));
          EXPECT_TRUE(got.equal(at::full({5}, 10 * before + i))) << got;
        }
        for (PendingCollective& each : sent) {
          TANDEM_RETURN_IF_ERROR(each.Wait());
        }
        return world.Barrier();
      },
      Options());
  EXPECT_TRUE(status.ok()) << status;
}

// Larger than any buffer on the way, both ways at once.
TEST_P(CommunicatorMessagesTest, LargeOnesCrossEachOther) {
  const absl::Status status = RunThreadRanks(
      2,
      [](Communicator& world) -> absl::Status {
        const int other = 1 - world.rank();
        const at::Tensor mine = at::arange(3'000'000).add_(world.rank());
        TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                                world.StartSend(mine, other, 0));
        const at::Tensor got = at::zeros_like(mine);
        TANDEM_RETURN_IF_ERROR(Receive(world, got, other, 0));
        EXPECT_TRUE(got.equal(at::arange(3'000'000).add_(other)));
        return sent.Wait();
      },
      Options());
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorMessagesTest, ThreadsOfARankMaySendAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kMessages = 25;
  const absl::Status status = RunThreadRanks(
      2,
      [](Communicator& world) -> absl::Status {
        std::vector<absl::Status> results(kThreads);
        std::vector<std::thread> threads;
        for (int tag = 0; tag < kThreads; ++tag) {
          threads.emplace_back([&, tag] {
            for (int i = 0; i < kMessages; ++i) {
              at::Tensor tensor = at::full({7}, tag * 1000 + i);
              if (world.rank() == 0) {
                results[tag].Update(Send(world, tensor, 1, tag));
              } else {
                const at::Tensor expected = tensor.clone();
                tensor.zero_();
                results[tag].Update(Receive(world, tensor, 0, tag));
                EXPECT_TRUE(tensor.equal(expected));
              }
            }
          });
        }
        for (std::thread& each : threads) each.join();
        for (const absl::Status& each : results) {
          TANDEM_RETURN_IF_ERROR(each);
        }
        return absl::OkStatus();
      },
      Options());
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommunicatorMessagesTest, OneThatGivesUpEndsTheWaitOfTheOther) {
  absl::Status seen;
  const absl::Status status = RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        if (world.rank() == 0) {
          world.Abort(absl::InternalError("the dog ate it"));
          return absl::OkStatus();
        }
        const at::Tensor got = at::zeros({5});
        auto coming = world.StartReceive(
            got, 0, 0, [] { return "activations of microbatch 3"; });
        seen = coming.ok() ? coming->Wait() : coming.status();
        return absl::OkStatus();
      },
      Options());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen.code(), absl::StatusCode::kAborted) << seen;
  EXPECT_THAT(std::string(seen.message()), HasSubstr("the dog ate it"));
  EXPECT_THAT(std::string(seen.message()),
              HasSubstr("receive from rank 0 (activations of microbatch 3)"));
}

TEST_P(CommunicatorMessagesTest, RefusesWhatMakesNoSense) {
  const absl::Status status = RunThreadRanks(
      2,
      [](Communicator& world) -> absl::Status {
        const at::Tensor tensor = at::zeros({4, 2});
        for (int peer : {-1, 2, world.rank()}) {
          EXPECT_EQ(world.StartSend(tensor, peer, 0).status().code(),
                    absl::StatusCode::kInvalidArgument);
          EXPECT_EQ(world.StartReceive(tensor, peer, 0).status().code(),
                    absl::StatusCode::kInvalidArgument);
        }
        const int other = 1 - world.rank();
        EXPECT_THAT(
            std::string(
                world.StartSend(tensor.t(), other, 0).status().message()),
            HasSubstr("dense and contiguous"));
        const at::Tensor conjugate = at::zeros({4}, at::kComplexFloat).conj();
        EXPECT_THAT(
            std::string(
                world.StartSend(conjugate, other, 0).status().message()),
            HasSubstr("call resolve_conj() and resolve_neg() first"));
        // Nothing is sent for nothing.
        EXPECT_TRUE(Send(world, at::zeros({0}), other, 0).ok());
        return world.Barrier();
      },
      Options());
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorMessagesTest,
                         testing::Values("gloo", "shm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::communicator_messages_test
