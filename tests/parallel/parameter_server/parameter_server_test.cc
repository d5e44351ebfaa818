#include "parallel/parameter_server/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/instrument/fault_point.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "tests/parallel/parameter_server/served_lab.h"

namespace tandem::parameter_server_test {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr int kSteps = 4;

ParameterServerOptions Momentum(int servers = 1, int64_t max_staleness = 0) {
  ParameterServerOptions options;
  options.optimizer = SgdOptions{0.9, 0, 0.01};
  options.servers = servers;
  options.max_staleness = max_staleness;
  return options;
}

// Workers, servers.
class SynchronousTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(SynchronousTest, HasTheBitsOfReplicasThatAverageGradients) {
  const auto [workers, servers] = GetParam();
  ParameterServerOptions sgd = Momentum(servers);
  ParameterServerOptions adamw = Momentum(servers);
  adamw.optimizer = AdamWOptions{};
  for (const ParameterServerOptions& options : {sgd, adamw}) {
    ExpectSameBits(TrainInLab(ServedLayoutOf(workers, options),
                              ServedJob(options, kSteps)),
                   TrainInLab(ReplicatedLayoutOf(workers),
                              ReplicatedJob(options, kSteps)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, SynchronousTest,
    testing::Values(std::make_tuple(1, 1), std::make_tuple(2, 1),
                    std::make_tuple(3, 1), std::make_tuple(6, 1),
                    std::make_tuple(2, 2), std::make_tuple(4, 3)));

// Each worker has 4 targets, of which another number counts.
TEST(ParameterServerTest, ALossWithAWeightIsTheMeanOverWhatCounts) {
  for (const int workers : {2, 3}) {
    const ParameterServerOptions options = Momentum();
    const LossFunction loss = CrossEntropyIgnoring(1);
    const auto found = TrainInLab(ServedLayoutOf(workers, options),
                                  ServedJob(options, kSteps, loss));
    ExpectSameBits(found, TrainInLab(ReplicatedLayoutOf(workers),
                                     ReplicatedJob(options, kSteps, loss)));
    ASSERT_TRUE(found.ok()) << found.status();
    int64_t counted = 0;
    for (const Score& each : found->scores) counted += each.count;
    EXPECT_LT(counted, 4 * workers * kSteps);
  }
}

// A server's report is the job's.
TEST(ParameterServerTest, AServerKnowsWhatLossesAreMadeOf) {
  const ParameterServerOptions options = Momentum();
  const LossFunction loss = WithZLoss(CrossEntropy, 0.1);
  const auto of_rank_0 = [&](const LabLayout& layout, LabJob job) {
    std::vector<double> losses;
    job.step = [&](const LabRank& rank, const Batch& batch,
                   int) -> absl::StatusOr<Score> {
      TANDEM_ASSIGN_OR_RETURN(const Score score,
                              rank.strategy->TrainStep(batch, 0.1));
      if (rank.rank == 0) {
        losses.push_back(rank.strategy->AuxiliaryLosses().at("z_loss"));
      }
      return score;
    };
    const auto outcome = TrainInLab(layout, job);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return losses;
  };
  const std::vector<double> found =
      of_rank_0(ServedLayoutOf(2, options), ServedJob(options, kSteps, loss));
  EXPECT_THAT(found,
              Pointwise(DoubleNear(1e-9),
                        of_rank_0(ReplicatedLayoutOf(2),
                                  ReplicatedJob(options, kSteps, loss))));
}

TEST(ParameterServerTest, ClipsNormsAsReplicasDo) {
  ParameterServerOptions options = Momentum();
  options.clip_norm = 0.2;
  ExpectSameBits(
      TrainInLab(ServedLayoutOf(2, options), ServedJob(options, kSteps)),
      TrainInLab(ReplicatedLayoutOf(2), ReplicatedJob(options, kSteps)));
}

// Workers wait for each other where there is no staleness, so that all go by
// the same values.
TEST(ParameterServerTest, OneWorkerIsNeverStale) {
  for (const int64_t staleness : {1, 5, -1}) {
    const ParameterServerOptions options = Momentum(1, staleness);
    ExpectSameBits(
        TrainInLab(ServedLayoutOf(1, options), ServedJob(options, kSteps)),
        TrainInLab(ReplicatedLayoutOf(1), ReplicatedJob(options, kSteps)));
  }
}

// With plain SGD two pushes from the same values are, in any order, one step
// with their mean.
TEST(ParameterServerTest, ARoundOfPushesIsAStepOfTheMean) {
  ParameterServerOptions options = Momentum(2, -1);
  options.optimizer = SgdOptions{};
  // The second worker computes its gradients before the first one pushes.
  LabJob job = ServedJob(options, 1);
  absl::Notification computed;
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int) -> absl::StatusOr<Score> {
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->ComputeGradients(batch));
    if (rank.rank == 3) computed.Notify();
    if (rank.rank == 2) computed.WaitForNotification();
    TANDEM_RETURN_IF_ERROR(rank.strategy->Update(0.1));
    return score;
  };
  const auto found = TrainInLab(ServedLayoutOf(2, options), job);
  const auto expected =
      TrainInLab(ReplicatedLayoutOf(2), ReplicatedJob(options, 1));
  ASSERT_TRUE(found.ok()) << found.status();
  for (const auto& [name, tensor] : expected->model) {
    EXPECT_TRUE(found->model.at(name).allclose(tensor, 1e-5, 1e-7)) << name;
  }
}

// A step of the other one, at its rate.
TEST(ParameterServerTest, AWorkerThatSkipsAStepHasNoPartInIt) {
  const ParameterServerOptions options = Momentum();
  LabJob job = ServedJob(options, 1);
  job.step = [](const LabRank& rank, const Batch& batch,
                int) -> absl::StatusOr<Score> {
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->ComputeGradients(batch));
    TANDEM_RETURN_IF_ERROR(rank.rank == 1 ? rank.strategy->SkipUpdate()
                                          : rank.strategy->Update(0.1));
    return score;
  };
  const auto found = TrainInLab(ServedLayoutOf(2, options), job);
  LabJob other = ReplicatedJob(options, 1);
  other.share = [](int step, int) { return BatchOfWorker(step, 1); };
  const auto expected = TrainInLab(ReplicatedLayoutOf(1), other);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  ExpectSameBits(found->optimizer, expected->optimizer);
  for (const auto& [name, tensor] : expected->model) {
    // Buffers are the first worker's.
    if (absl::StrContains(name, ".running_")) continue;
    EXPECT_TRUE(found->model.at(name).equal(tensor)) << name;
  }
}

// How far ahead of a slow worker the others come, by bound.
TEST(ParameterServerTest, NobodyIsFurtherAheadThanTheBound) {
  constexpr int kSlow = 1;  // rank
  constexpr int kManySteps = 8;
  for (const int64_t bound : {0, 1, 3}) {
    const ParameterServerOptions options = Momentum(1, bound);
    LabJob job = ServedJob(options, kManySteps);
    std::map<int, std::atomic<int>> begun;
    for (int rank = 1; rank <= 3; ++rank) begun[rank] = 0;
    std::atomic<int> most{0};
    job.step = [&](const LabRank& rank, const Batch& batch,
                   int step) -> absl::StatusOr<Score> {
      if (rank.rank > 0) begun[rank.rank] = step;
      if (rank.rank == kSlow) {
        const int furthest =
            std::min(kManySteps - 1, step + static_cast<int>(bound));
        const auto are_there = [&] {
          return begun.at(2) >= furthest && begun.at(3) >= furthest;
        };
        if (!AwaitOtherRanks(are_there)) {
          return absl::DeadlineExceededError("others do not come to the bound");
        }
        // A worker that goes too far has done so by then.
        absl::SleepFor(absl::Milliseconds(150));
        for (const int other : {2, 3}) {
          most = std::max<int>(most, begun[other] - step);
        }
      }
      return rank.strategy->TrainStep(batch, 0.1);
    };
    const auto outcome = TrainInLab(ServedLayoutOf(3, options), job);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(most, bound);
  }
}

// Worker 0 does all its steps while worker 1 is in its first.
TEST(ParameterServerTest, WithoutABoundNobodyWaits) {
  const ParameterServerOptions options = Momentum(2, -1);
  LabJob job = ServedJob(options, kSteps);
  absl::Notification through;
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    if (rank.rank == 3 && step == 0 &&
        !through.WaitForNotificationWithTimeout(absl::Seconds(30))) {
      return absl::DeadlineExceededError("worker 0 does not get through");
    }
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->TrainStep(batch, 0.1));
    if (rank.rank == 2 && step == kSteps - 1) through.Notify();
    return score;
  };
  std::map<std::string, double> measured;
  job.end = [&](const LabRank& rank) {
    if (rank.rank == 0) {
      for (const auto& each : rank.strategy->Measurements()) {
        measured.insert(each);
      }
    }
    return rank.strategy->Synchronise();
  };
  const auto outcome = TrainInLab(ServedLayoutOf(2, options), job);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(measured["pushes"], 2 * kSteps);
  EXPECT_EQ(measured["max_staleness"], kSteps);
  EXPECT_EQ(measured["duplicate_pushes"], 0);
  // A step's score is that of both workers.
  for (const Score& score : outcome->scores) EXPECT_EQ(score.count, 8);
}

TEST(ParameterServerTest, WorkersMeetWithTheServersValues) {
  const ParameterServerOptions options = Momentum(3, -1);
  const auto outcome =
      TrainInLab(ServedLayoutOf(4, options), ServedJob(options, kSteps));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (int rank = 3; rank < 7; ++rank) {
    ExpectSameBits(outcome->held[static_cast<size_t>(rank)], outcome->model);
  }
}

TEST(ParameterServerTest, AFailingWorkerStopsNobody) {
  for (const int64_t staleness : {0, 2, -1}) {
    for (const int gone : {1, 2, 3}) {
      const ParameterServerOptions options = Momentum(1, staleness);
      LabJob job = ServedJob(options, kSteps);
      job.step = [&](const LabRank& rank, const Batch& batch,
                     int step) -> absl::StatusOr<Score> {
        if (rank.rank == gone && step >= 2) return Score();
        return rank.strategy->TrainStep(batch, 0.1);
      };
      // It leaves without a word of a meeting.
      job.end = [&](const LabRank& rank) {
        return rank.rank == gone ? absl::InternalError("has an end of its own")
                                 : rank.strategy->Synchronise();
      };
      std::atomic<int> ended{0};
      LabJob counted = job;
      counted.end = [&](const LabRank& rank) {
        const absl::Status status = job.end(rank);
        if (status.ok()) ++ended;
        return status;
      };
      const auto outcome = TrainInLab(ServedLayoutOf(3, options), counted);
      EXPECT_THAT(outcome.status(), Says("has an end of its own"));
      EXPECT_EQ(ended, 3);
    }
  }
}

// Between the two messages of a push.
TEST(ParameterServerTest, AWorkerThatBreaksOffInsideAPushStopsNobody) {
  for (const int64_t staleness : {0, -1}) {
    const ParameterServerOptions options = Momentum(1, staleness);
    std::atomic<int> pushes{0};
    Fault fault;
    fault.point = "push:0";
    fault.action = Fault::Action::kCall;
    fault.call = [&] {
      return ++pushes == 5 ? absl::InternalError("breaks off")
                           : absl::OkStatus();
    };
    ArmFaults({fault});
    std::atomic<int> ended{0};
    LabJob job = ServedJob(options, kSteps);
    job.end = [&](const LabRank& rank) {
      const absl::Status status = rank.strategy->Synchronise();
      if (status.ok()) ++ended;
      return status;
    };
    const auto outcome = TrainInLab(ServedLayoutOf(3, options), job);
    ArmFaults({});
    EXPECT_THAT(outcome.status(), Says("breaks off"));
    EXPECT_EQ(ended, 3) << "the server and two workers";
  }
}

TEST(ParameterServerTest, AServersFailureIsNamedByEveryWorker) {
  for (const int64_t staleness : {0, -1}) {
    const ParameterServerOptions options = Momentum(2, staleness);
    absl::Mutex mutex;
    std::map<int, std::string> said;
    std::atomic<int> updates{0};
    Fault fault;
    fault.point = "before_optimizer";
    fault.action = Fault::Action::kCall;
    fault.call = [&] {
      return ++updates == 4 ? absl::InternalError("the disk is full")
                            : absl::OkStatus();
    };
    ArmFaults({fault});
    LabJob job = ServedJob(options, kSteps);
    job.step = [&](const LabRank& rank, const Batch& batch,
                   int) -> absl::StatusOr<Score> {
      auto score = rank.strategy->TrainStep(batch, 0.1);
      if (!score.ok()) {
        absl::MutexLock lock(&mutex);
        said[rank.rank] = std::string(score.status().message());
      }
      return score;
    };
    const auto outcome = TrainInLab(ServedLayoutOf(3, options), job);
    ArmFaults({});
    EXPECT_FALSE(outcome.ok());
    EXPECT_EQ(said.size(), 5u) << "all ranks end";
    for (int rank = 2; rank < 5; ++rank) {
      EXPECT_THAT(said[rank], HasSubstr("(rank ")) << rank;
      EXPECT_THAT(said[rank],
                  HasSubstr("start the job again from its last checkpoint"))
          << rank;
    }
  }
}

TEST(ParameterServerTest, WhatCannotWorkIsRefused) {
  const auto refusal = [](ParameterServerOptions options, int ranks) {
    return std::string(CheckParameterServerOptions(options, ranks).message());
  };
  EXPECT_EQ(refusal(Momentum(1), 2), "");
  EXPECT_THAT(refusal(Momentum(2), 2), HasSubstr("2 of 2 ranks"));
  EXPECT_THAT(refusal(Momentum(0), 2), HasSubstr("0 of 2 ranks"));
  EXPECT_THAT(refusal(Momentum(1, -2), 2), HasSubstr("max_staleness is -2"));
  ParameterServerOptions clips = Momentum(2);
  clips.clip_norm = 1;
  EXPECT_THAT(refusal(clips, 4), HasSubstr("clip_norm"));
  clips = Momentum(1, 1);
  clips.clip_norm = 1;
  EXPECT_THAT(refusal(clips, 4), HasSubstr("max_staleness of 1"));
  ParameterServerOptions scales = Momentum(1);
  scales.grad_scaler.emplace();
  EXPECT_THAT(refusal(scales, 2), HasSubstr("train in bf16"));
  scales.grad_scaler->enabled = false;
  EXPECT_EQ(refusal(scales, 2), "");
  ParameterServerOptions whole = Momentum(1);
  whole.further_optimizers = {MuonOptions()};
  EXPECT_THAT(refusal(whole, 2), HasSubstr("Muon steps whole ones"));
}

}  // namespace
}  // namespace tandem::parameter_server_test
