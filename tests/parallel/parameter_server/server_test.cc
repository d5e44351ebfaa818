// A server and its workers' ends, without a model.

#include "parallel/parameter_server/server.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/parameter_server/worker_client.h"
#include "parallel/step/step_score.h"

namespace tandem::server_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr int64_t kNumel = 5;

ServedLayout OneTensor() {
  ServedLayout layout;
  layout.trained = {{{"w", at::kFloat, {kNumel}}, {1}, 0}};
  return layout;
}

const ServedLayout& Layout() {
  static const ServedLayout& layout = *new ServedLayout(OneTensor());
  return layout;
}

const std::vector<Slice>& Slices() {
  static const auto& slices =
      *new std::vector<Slice>(CutIntoSlices(Layout().trained, 1));
  return slices;
}

using Serve = std::function<absl::Status(ParameterServer& server)>;
using Work = std::function<absl::Status(int worker, WorkerClient& client)>;

// Servers of plain SGD; values begin at 0.
absl::Status RunServed(int workers, int64_t max_staleness, const Serve& serve,
                       const Work& work) {
  return RunThreadRanks(workers + 1, [&](Communicator& world) -> absl::Status {
    const auto join = [&](int worker) {
      SubgroupOptions options;
      options.has_own_fate = true;
      return world.Subgroup({0, worker + 1}, absl::StrCat("worker ", worker),
                            options);
    };
    if (world.rank() > 0) {
      WorkerClient::Setup setup;
      setup.slices = &Slices();
      setup.server_names = {"the server"};
      setup.servers.resize(1);
      TANDEM_ASSIGN_OR_RETURN(setup.servers[0], join(world.rank() - 1));
      WorkerClient client(std::move(setup));
      return work(world.rank() - 1, client);
    }
    TANDEM_ASSIGN_OR_RETURN(auto served,
                            ServedSlice::Create(Layout(), Slices()[0], {}));
    ParameterServer::Setup setup;
    setup.slice = &Slices()[0];
    setup.kept_bytes = 0;
    setup.max_staleness = max_staleness;
    setup.server_names = {"the server"};
    for (int w = 0; w < workers; ++w) {
      TANDEM_ASSIGN_OR_RETURN(auto group, join(w));
      setup.workers.push_back(std::move(group));
    }
    ParameterServer server(std::move(setup), std::move(served));
    return serve(server);
  });
}

// Pushes a gradient of all `gradient` at rate 1.
absl::Status Push(WorkerClient& client, int64_t step, double gradient,
                  const at::Tensor& values) {
  WorkerClient::StepPush push;
  push.step = step;
  push.learning_rate = 1;
  push.score.score.loss_sum = gradient;
  push.score.score.count = 1;
  return client.Push(push, {at::full({kNumel}, gradient)}, {values});
}

absl::Status Skip(WorkerClient& client, int64_t step,
                  const at::Tensor& values) {
  WorkerClient::StepPush push;
  push.step = step;
  push.skips = true;
  return client.Push(push, {at::Tensor()}, {values});
}

std::map<std::string, double> Measured(const ParameterServer& server) {
  std::map<std::string, double> measured;
  for (const auto& each : server.Measurements()) measured.insert(each);
  return measured;
}

TEST(ServerTest, APushThatComesTwiceIsAppliedOnce) {
  for (const int64_t staleness : {0, 3, -1}) {
    ExpectOk(RunServed(
        1, staleness,
        [](ParameterServer& server) -> absl::Status {
          TANDEM_ASSIGN_OR_RETURN(const StepScore step, server.AwaitStep(2));
          EXPECT_EQ(step.score.loss_sum, 4);
          TANDEM_RETURN_IF_ERROR(server.AwaitMeeting());
          EXPECT_EQ(Measured(server)["pushes"], 2);
          EXPECT_EQ(Measured(server)["duplicate_pushes"], 2);
          return absl::OkStatus();
        },
        [](int, WorkerClient& client) -> absl::Status {
          const at::Tensor values = at::zeros({kNumel});
          TANDEM_RETURN_IF_ERROR(Push(client, 1, 1, values));
          EXPECT_EQ(values[4].item<float>(), -1);
          TANDEM_RETURN_IF_ERROR(Push(client, 1, 1, values));
          EXPECT_EQ(values[4].item<float>(), -1);
          TANDEM_RETURN_IF_ERROR(Push(client, 2, 4, values));
          TANDEM_RETURN_IF_ERROR(Push(client, 1, 1, values));
          EXPECT_EQ(values[0].item<float>(), -5);
          return client.Meet({values}, {});
        }));
  }
}

TEST(ServerTest, AStepThatIsLeftOutIsAnError) {
  const absl::Status status = RunServed(
      1, -1,
      [](ParameterServer& server) {
        EXPECT_TRUE(absl::IsUnavailable(server.AwaitStep(1).status()));
        return absl::OkStatus();
      },
      [](int, WorkerClient& client) {
        const at::Tensor values = at::zeros({kNumel});
        return Push(client, 2, 1, values);
      });
  EXPECT_THAT(status, Says("pushed step 2 after step 0"));
}

// What one worker pushes after a meeting waits until this rank's thread, which
// may be saving, begins the next step.
TEST(ServerTest, NothingChangesBetweenAMeetingAndTheNextStep) {
  at::Tensor met, later;
  ExpectOk(RunServed(
      2, -1,
      [&](ParameterServer& server) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(server.AwaitStep(1).status());
        TANDEM_RETURN_IF_ERROR(server.AwaitMeeting());
        met = server.served().Pieces()[0].second.clone();
        absl::SleepFor(absl::Milliseconds(300));  // both want to push
        later = server.served().Pieces()[0].second.clone();
        return server.AwaitStep(2).status();
      },
      [](int, WorkerClient& client) -> absl::Status {
        const at::Tensor values = at::zeros({kNumel});
        TANDEM_RETURN_IF_ERROR(Push(client, 1, 2, values));
        TANDEM_RETURN_IF_ERROR(client.Meet({values}, {}));
        // Two pushes of 2 at half the rate.
        EXPECT_EQ(values[0].item<float>(), -2);
        return Push(client, 2, 2, values);
      }));
  EXPECT_TRUE(later.equal(met));
}

TEST(ServerTest, ScoresAddUp) {
  ExpectOk(RunServed(
      3, 0,
      [](ParameterServer& server) -> absl::Status {
        for (const double expected : {6.0, 60.0}) {
          TANDEM_ASSIGN_OR_RETURN(const Score sum, server.AwaitSum());
          EXPECT_EQ(sum.loss_sum, expected);
        }
        return absl::OkStatus();
      },
      [](int worker, WorkerClient& client) -> absl::Status {
        for (const double scale : {1.0, 10.0}) {
          Score mine;
          mine.loss_sum = (worker + 1) * scale;
          TANDEM_ASSIGN_OR_RETURN(const Score sum, client.Sum(mine));
          EXPECT_EQ(sum.loss_sum, 6 * scale);
        }
        return absl::OkStatus();
      }));
}

// The first worker, whose rate a round goes by where it skips none, is the one
// that does.
TEST(ServerTest, AStepThatSomeSkipIsTheOthers) {
  ExpectOk(RunServed(
      3, 0,
      [](ParameterServer& server) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(const StepScore first, server.AwaitStep(1));
        EXPECT_EQ(first.score.loss_sum, 6);
        return server.AwaitStep(2).status();
      },
      [](int worker, WorkerClient& client) -> absl::Status {
        const at::Tensor values = at::zeros({kNumel});
        TANDEM_RETURN_IF_ERROR(worker == 0
                                   ? Skip(client, 1, values)
                                   : Push(client, 1, 2 * worker, values));
        EXPECT_EQ(values[0].item<float>(), -3);
        TANDEM_RETURN_IF_ERROR(Skip(client, 2, values));
        EXPECT_EQ(values[0].item<float>(), -3);
        return absl::OkStatus();
      }));
}

TEST(ServerTest, APushThatSkipsIsNoUpdate) {
  ExpectOk(RunServed(
      1, -1,
      [](ParameterServer& server) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(server.AwaitStep(2).status());
        EXPECT_EQ(Measured(server)["max_staleness"], 0);
        return absl::OkStatus();
      },
      [](int, WorkerClient& client) -> absl::Status {
        const at::Tensor values = at::zeros({kNumel});
        TANDEM_RETURN_IF_ERROR(Skip(client, 1, values));
        EXPECT_EQ(values[0].item<float>(), 0);
        TANDEM_RETURN_IF_ERROR(Push(client, 2, 3, values));
        EXPECT_EQ(values[0].item<float>(), -3);
        return absl::OkStatus();
      }));
}

// What was done before the job went on is nothing that values are behind.
TEST(ServerTest, AJobThatGoesOnIsNotStale) {
  absl::Notification resumed;
  ExpectOk(RunServed(
      1, 2,
      [&](ParameterServer& server) -> absl::Status {
        server.ResumeAt(5);
        resumed.Notify();
        TANDEM_RETURN_IF_ERROR(server.AwaitStep(6).status());
        EXPECT_EQ(Measured(server)["max_staleness"], 0);
        return absl::OkStatus();
      },
      [&](int, WorkerClient& client) {
        resumed.WaitForNotification();
        const at::Tensor values = at::zeros({kNumel});
        return Push(client, 6, 1, values);
      }));
}

// The mean is over those that live.
TEST(ServerTest, WorkersLearnTheMeanOfTheirWeights) {
  ExpectOk(RunServed(
      3, 0,
      [](ParameterServer& server) { return server.AwaitStep(2).status(); },
      [](int worker, WorkerClient& client) -> absl::Status {
        const at::Tensor values = at::zeros({kNumel});
        const double mine =
            std::vector<double>{1, 2, 6}.at(static_cast<size_t>(worker));
        TANDEM_ASSIGN_OR_RETURN(const double all, client.MeanWeight(1, mine));
        EXPECT_EQ(all, 3);
        TANDEM_RETURN_IF_ERROR(Push(client, 1, 1, values));
        if (worker == 2) return absl::OkStatus();
        TANDEM_ASSIGN_OR_RETURN(const double left, client.MeanWeight(2, mine));
        EXPECT_EQ(left, 1.5);
        return Push(client, 2, 1, values);
      }));
}

TEST(ServerTest, WhatLossesAreMadeOfComesWithTheScore) {
  ExpectOk(RunServed(
      2, 0,
      [](ParameterServer& server) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(const StepScore step, server.AwaitStep(1));
        EXPECT_THAT(step.auxiliary_losses,
                    ElementsAre(Pair("a loss", 0.2), Pair("balance", 2)));
        EXPECT_THAT(step.sums, ElementsAre(Pair("dropped", 12)));
        return absl::OkStatus();
      },
      [](int worker, WorkerClient& client) -> absl::Status {
        const at::Tensor values = at::zeros({kNumel});
        WorkerClient::StepPush push;
        push.step = 1;
        push.learning_rate = 1;
        push.score.auxiliary_losses = {{"a loss", 0.2},
                                       {"balance", 1.0 + 2 * worker}};
        push.score.sums = {{"dropped", 5.0 + 2 * worker}};
        return client.Push(push, {at::full({kNumel}, 1.0)}, {values});
      }));
}

// A server whose own thread has ended: workers are told, and do not wait.
TEST(ServerTest, WhoWantsAStepOfAServerThatHasEndedIsTold) {
  ExpectOk(RunServed(
      2, 0, [](ParameterServer&) { return absl::OkStatus(); },
      [](int, WorkerClient& client) {
        const at::Tensor values = at::zeros({kNumel});
        const absl::Status pushed = Push(client, 1, 1, values);
        EXPECT_THAT(pushed, Says("takes no more steps"));
        return absl::OkStatus();
      }));
}

// Workers that have done so many steps each.
WorkerProgress After(int64_t max_staleness, const std::vector<int>& pushed) {
  WorkerProgress progress(static_cast<int>(pushed.size()), max_staleness);
  for (size_t w = 0; w < pushed.size(); ++w) {
    for (int i = 0; i < pushed[w]; ++i) progress.Advance(static_cast<int>(w));
  }
  return progress;
}

// By worker: 'g' may go on, '.' waits.
std::string WhoGoesOn(const WorkerProgress& progress) {
  std::string who;
  for (int w = 0; w < progress.workers(); ++w) {
    who += progress.MayGoOn(w) ? 'g' : '.';
  }
  return who;
}

// Bound, steps done, who may begin the next one.
using Row = std::tuple<int, std::vector<int>, std::string>;

TEST(WorkerProgressTest, TheBoundIsExact) {
  const std::vector<Row> table = {
      {0, {0}, "g"},         {0, {5}, "g"},          {0, {0, 0, 0}, "ggg"},
      {0, {1, 0, 1}, ".g."}, {0, {1, 1, 1}, "ggg"},  {1, {1, 0, 0}, "ggg"},
      {1, {2, 0, 1}, ".gg"}, {1, {2, 1, 1}, "ggg"},  {3, {3, 0}, "gg"},
      {3, {4, 0}, ".g"},     {3, {4, 1}, "gg"},      {3, {7, 4, 3, 8}, ".gg."},
      {-1, {1000, 0}, "gg"}, {-1, {0, 7, 1}, "ggg"},
  };
  for (const auto& [bound, pushed, who] : table) {
    EXPECT_EQ(WhoGoesOn(After(bound, pushed)), who)
        << "bound " << bound << ", " << testing::PrintToString(pushed);
  }
}

TEST(WorkerProgressTest, APushCountsOnce) {
  WorkerProgress progress(2, 0);
  EXPECT_EQ(progress.Classify(0, 1), WorkerProgress::Push::kNext);
  EXPECT_EQ(progress.Classify(0, 2), WorkerProgress::Push::kGap);
  progress.Advance(0);
  EXPECT_EQ(progress.Classify(0, 1), WorkerProgress::Push::kDuplicate);
  EXPECT_EQ(progress.Classify(0, 2), WorkerProgress::Push::kNext);
  EXPECT_EQ(progress.Classify(0, 3), WorkerProgress::Push::kGap);
  EXPECT_EQ(progress.Classify(1, 1), WorkerProgress::Push::kNext);
}

TEST(WorkerProgressTest, NobodyWaitsForTheDead) {
  WorkerProgress progress = After(1, {5, 2, 4});
  EXPECT_EQ(WhoGoesOn(progress), ".g.");
  progress.Drop(1);
  EXPECT_EQ(progress.living(), 2);
  EXPECT_FALSE(progress.lives(1));
  EXPECT_EQ(progress.slowest(), 4);
  EXPECT_TRUE(progress.MayGoOn(0));
  EXPECT_TRUE(progress.MayGoOn(2));
  progress.Drop(0);
  progress.Drop(2);
  EXPECT_EQ(progress.living(), 0);
  EXPECT_EQ(progress.slowest(), -1);
  EXPECT_EQ(progress.fastest(), 5);
}

TEST(WorkerProgressTest, GoesOnFromACheckpoint) {
  WorkerProgress progress(3, 2);
  progress.ResumeAt(40);
  EXPECT_EQ(progress.Classify(1, 40), WorkerProgress::Push::kDuplicate);
  EXPECT_EQ(progress.Classify(1, 41), WorkerProgress::Push::kNext);
  EXPECT_EQ(progress.slowest(), 40);
}

}  // namespace
}  // namespace tandem::server_test
