// Training on parameter servers, as a user starts it: beside other strategies,
// resumed, and with ranks that die, freeze or are slow.

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/faults/fault_ranks.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::parameter_server_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using Clock = FaultRanks::Clock;

constexpr char kJob[] = "--batch_size=12 --epochs=2 ";

// Flags of a job on servers: `ranks` are servers and workers.
std::string Served(int ranks, int servers) {
  std::string flags =
      "--strategy=parameter_server --servers=" + std::to_string(servers);
  if (ranks > 0) flags += " --nproc_per_node=" + std::to_string(ranks);
  return flags;
}

// And the whole of them.
Flags ServedJob(int ranks, int servers, const std::string& more = "") {
  return Small(kJob + Served(ranks, servers) + " " + more);
}

TEST(ParameterServerTrainTest, SynchronousOnesHaveTheBitsOfDdp) {
  for (const int workers : {1, 2, 3}) {
    ExpectSame({"Served",
                Small(std::string(kJob) + "--optimizer=adamw"),
                {Served(workers + 1, 1), Served(workers + 2, 2)},
                SameBits,
                {""},
                "--nproc_per_node=" + std::to_string(workers)});
  }
}

double ZLoss(const JobRun& run) {
  return EventsOf(run.events, "step")
      .back()["auxiliary_losses"]["z_loss"]
      .get<double>();
}

TEST(ParameterServerTrainTest, LinesShowWhatLossesAreMadeOf) {
  ExpectSame({"Lines",
              Small(std::string(kJob) + "--z_loss=0.01"),
              {Served(3, 1)},
              [](const JobRun& served, const JobRun& replicated) {
                EXPECT_NEAR(ZLoss(served), ZLoss(replicated), 1e-9);
              },
              {""},
              "--nproc_per_node=2"});
}

// They talk through the host, whatever serves devices.
TEST(ParameterServerTrainTest, WorkersOnDevicesOfNcclHaveTheBitsOfDdp) {
  ExpectSame(
      {"Devices",
       Small(kJob),
       {Served(3, 1) + " --device=sim --backend=sim_nccl --devices_per_rank=2"},
       SameBits,
       {""},
       "--nproc_per_node=2"});
}

// The checkpoint that a job with `saver` has of `step` goes on with each of
// `others`, to its bits; returns those.
std::string ExpectGoesOnElsewhere(const Flags& job, const std::string& saver,
                                  int step,
                                  const std::vector<std::string>& others) {
  const std::string folder = NewFolder("served");
  const std::string straight = Fingerprint(RunJobForEvents(
      Joined(job, Words(saver + " --save_every=" + std::to_string(step)),
             {"--save_dir=" + folder})));
  for (const std::string& other : others) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(
                  job, Words(other), {"--resume=" + SavedStep(folder, step)}))),
              straight)
        << other;
  }
  return straight;
}

// In the midst of an epoch; on as many servers, on others, and without any.
TEST(ParameterServerTrainTest, GoesOnFromACheckpointAlsoElsewhere) {
  const Flags job =
      Small(std::string(kJob) +
            "--momentum=0.9 --model=gpt_tiny_tied --dataset=synthetic_tokens "
            "--synthetic_shape=8 --synthetic_samples=60");
  const std::string saved = ExpectGoesOnElsewhere(
      job, Served(4, 2), 3,
      {Served(4, 2), Served(3, 1), "--nproc_per_node=2",
       // The tied weight's two copies are on two devices then.
       Served(3, 1) + " --devices_per_rank=2"});
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, Words(Served(4, 2))))),
            saved);
}

TEST(ParameterServerTrainTest, ADdpCheckpointGoesOnOnServers) {
  ExpectGoesOnElsewhere(Small(std::string(kJob) + "--optimizer=adam"),
                        "--nproc_per_node=2", 5, {Served(3, 1)});
}

// Every step of one worker takes longer than a whole epoch of the others.
TEST(ParameterServerTrainTest, ASlowWorkerIsWaitedForAtTheEndAlone) {
  const Events events =
      RunJobForEvents(ServedJob(4, 1, "--max_staleness=-1"), nullptr,
                      FaultOf("point=push:0,rank=2,action=delay:0.2"));
  EXPECT_EQ(EventsOf(events, "step").size(), 16u);
  EXPECT_EQ(EventsOf(events, "step").back()["step"], 16);
}

TEST(ParameterServerTrainTest, AWorkerThatDiesInAPushStopsNobody) {
  for (const std::string staleness : {"0", "2", "-1"}) {
    ProgramResult program;
    const Events events =
        RunJobForEvents(ServedJob(5, 2, "--max_staleness=" + staleness),
                        &program, FaultOf(FaultAt("push:1", 3, "kill")));
    EXPECT_THAT(program.err, HasSubstr("SIGKILL")) << staleness;
    EXPECT_THAT(program.err, HasSubstr("the other ranks go on without it"));
    EXPECT_FALSE(Fingerprint(events).empty());
  }
}

// Without the launcher: ranks find out for themselves.
TEST(ParameterServerFaultTest, WorkersGoOnWithoutOne) {
  for (const std::string action : {"kill", "stop"}) {
    const int timeout = action == "stop" ? kShortTimeout : kLongTimeout;
    FaultRanks ranks(ServedJob(0, 1, "--timeout=" + std::to_string(timeout)), 2,
                     FaultAt("push:0", 2, action), {}, 4);
    ASSERT_TRUE(ranks.AwaitFault());
    for (const int rank : ranks.survivors()) {
      const ProgramResult result = ranks[rank].Wait();
      EXPECT_EQ(result.exit_code, 0) << "rank " << rank << ": " << result.err;
    }
    ranks.ExpectNoProcessLeft();
  }
}

// At its first update: which step its loop is in then is a matter of time.
void ExpectServerIsNamedByAll(int culprit, const std::string& action,
                              const std::string& model) {
  const int timeout = action == "stop" ? kShortTimeout : kLongTimeout;
  const std::string number = std::to_string(culprit);
  FaultRanks ranks(
      ServedJob(0, 2,
                "--epochs=1000 --model=" + model +
                    " --timeout=" + std::to_string(timeout)),
      culprit, "point=before_optimizer,rank=" + number + ",action=" + action,
      {}, 4);
  ASSERT_TRUE(ranks.AwaitFault());
  const auto out = Clock::now();
  const auto bound = seconds(action == "stop" ? timeout : 0) + kTimeToSay;
  for (const int rank : ranks.survivors()) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_LT(Clock::now() - out, bound) << "rank " << rank;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("server " + number + " (rank " + number +
                                      " of the job) has died"))
        << "rank " << rank;
    EXPECT_THAT(result.err, HasSubstr("from its last checkpoint"));
  }
  ranks.ExpectNoProcessLeft();
}

TEST(ParameterServerFaultTest, AServerThatDiesIsNamedByAll) {
  for (const int culprit : {0, 1}) {
    ExpectServerIsNamedByAll(culprit, "kill", "mlp_small");
  }
}

TEST(ParameterServerFaultTest, AServerThatFreezesIsNamedByAll) {
  for (const int culprit : {0, 1}) {
    ExpectServerIsNamedByAll(culprit, "stop", "mlp_small");
  }
}

// The other's values are more than a connection holds: it waits for workers to
// take them, which wait for the culprit.
TEST(ParameterServerFaultTest, AServerThatFreezesIsNamedByOneThatSends) {
  ExpectServerIsNamedByAll(0, "stop", "mlp_wide");
}

}  // namespace
}  // namespace tandem::parameter_server_test
