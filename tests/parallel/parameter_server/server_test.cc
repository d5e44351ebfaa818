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
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/testing/thread_ranks.h"
#include "parallel/parameter_server/worker_client.h"

namespace tandem::server_test {
namespace {

using ::testing::HasSubstr;

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

// Of plain SGD; values begin at 0.
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
  Score score;
  score.loss_sum = gradient;
  score.count = 1;
  return client.Push(step, 1, score, {at::full({kNumel}, gradient)}, {values});
}

std::map<std::string, double> Measured(const ParameterServer& server) {
  std::map<std::string, double> measured;
  for (const auto& each : server.Measurements()) measured.insert(each);
  return measured;
}

TEST(ServerTest, APushThatComesTwiceIsAppliedOnce) {
  for (const int64_t staleness : {0, 3, -1}) {
    const absl::Status status = RunServed(
        1, staleness,
        [](ParameterServer& server) -> absl::Status {
          TANDEM_ASSIGN_OR_RETURN(const Score score, server.AwaitStep(2));
          EXPECT_EQ(score.loss_sum, 4);
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
        });
    EXPECT_TRUE(status.ok()) << status;
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
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("pushed step 2 after step 0"));
}

// What one worker pushes after a meeting waits until this rank's thread, which
// may be saving, begins the next step.
TEST(ServerTest, NothingChangesBetweenAMeetingAndTheNextStep) {
  at::Tensor met, later;
  const absl::Status status = RunServed(
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
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(later.equal(met));
}

TEST(ServerTest, ScoresAddUp) {
  const absl::Status status = RunServed(
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
      });
  EXPECT_TRUE(status.ok()) << status;
}

// A server whose own thread has ended: workers are told, and do not wait.
TEST(ServerTest, WhoWantsAStepOfAServerThatHasEndedIsTold) {
  const absl::Status status = RunServed(
      2, 0, [](ParameterServer&) { return absl::OkStatus(); },
      [](int, WorkerClient& client) {
        const at::Tensor values = at::zeros({kNumel});
        const absl::Status pushed = Push(client, 1, 1, values);
        EXPECT_THAT(std::string(pushed.message()),
                    HasSubstr("takes no more steps"));
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace tandem::server_test
