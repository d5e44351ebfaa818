// Training on parameter servers, as a user starts it: beside other strategies,
// resumed, and with ranks that die, freeze or are slow.

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/fault_ranks.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using Clock = FaultRanks::Clock;

Flags Served(int ranks, int servers, const Flags& more = {}) {
  Flags flags =
      SmallJob({"--strategy=parameter_server", "--batch_size=12",
                "--servers=" + std::to_string(servers), "--epochs=2"});
  if (ranks > 0) {
    flags.push_back("--nproc_per_node=" + std::to_string(ranks));
  }
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Flags Replicated(int ranks, const Flags& more = {}) {
  Flags flags = SmallJob({"--batch_size=12", "--epochs=2",
                          "--nproc_per_node=" + std::to_string(ranks)});
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST(ParameterServerTrainTest, SynchronousOnesHaveTheBitsOfDdp) {
  const Flags adamw = {"--optimizer=adamw", "--intra_op_threads=1"};
  for (const int workers : {1, 2, 3}) {
    const std::string expected =
        Fingerprint(RunJobForEvents(Replicated(workers, adamw)));
    EXPECT_EQ(Fingerprint(RunJobForEvents(Served(workers + 1, 1, adamw))),
              expected)
        << workers << " workers";
    EXPECT_EQ(Fingerprint(RunJobForEvents(Served(workers + 2, 2, adamw))),
              expected)
        << workers << " workers, two servers";
  }
}

TEST(ParameterServerTrainTest, LinesShowWhatLossesAreMadeOf) {
  const Flags more = {"--z_loss=0.01", "--intra_op_threads=1", "--log_every=1"};
  const auto z_loss = [](const Events& events) {
    return EventsOf(events, "step")
        .back()["auxiliary_losses"]["z_loss"]
        .get<double>();
  };
  EXPECT_NEAR(z_loss(RunJobForEvents(Served(3, 1, more))),
              z_loss(RunJobForEvents(Replicated(2, more))), 1e-9);
}

// They talk through the host, whatever serves devices.
TEST(ParameterServerTrainTest, WorkersOnDevicesOfNcclHaveTheBitsOfDdp) {
  const Flags devices = {"--device=sim", "--backend=sim_nccl",
                         "--devices_per_rank=2"};
  EXPECT_EQ(Fingerprint(RunJobForEvents(Served(3, 1, devices))),
            Fingerprint(RunJobForEvents(Replicated(2))));
}

// In the midst of an epoch; on as many servers, on others, and without any.
TEST(ParameterServerTrainTest, GoesOnFromACheckpointAlsoElsewhere) {
  const Flags more = {"--momentum=0.9",        "--intra_op_threads=1",
                      "--model=gpt_tiny_tied", "--dataset=synthetic_tokens",
                      "--synthetic_shape=8",   "--synthetic_samples=60"};
  const std::string straight = Fingerprint(RunJobForEvents(Served(4, 2, more)));
  const std::string folder = NewFolder("served");
  Flags saving = more;
  saving.push_back("--save_dir=" + folder);
  saving.push_back("--save_every=3");
  EXPECT_EQ(Fingerprint(RunJobForEvents(Served(4, 2, saving))), straight);
  Flags resuming = more;
  resuming.push_back("--resume=" + folder + "/step-000000003");
  EXPECT_EQ(Fingerprint(RunJobForEvents(Served(4, 2, resuming))), straight);
  EXPECT_EQ(Fingerprint(RunJobForEvents(Served(3, 1, resuming))), straight);
  EXPECT_EQ(Fingerprint(RunJobForEvents(Replicated(2, resuming))), straight);
  // The tied weight's two copies are on two devices then.
  resuming.push_back("--devices_per_rank=2");
  EXPECT_EQ(Fingerprint(RunJobForEvents(Served(3, 1, resuming))), straight);
}

TEST(ParameterServerTrainTest, ADdpCheckpointGoesOnOnServers) {
  const Flags more = {"--optimizer=adam", "--intra_op_threads=1"};
  const std::string folder = NewFolder("replicated");
  Flags saving = more;
  saving.push_back("--save_dir=" + folder);
  saving.push_back("--save_every=5");
  const std::string straight =
      Fingerprint(RunJobForEvents(Replicated(2, saving)));
  Flags resuming = more;
  resuming.push_back("--resume=" + folder + "/step-000000005");
  EXPECT_EQ(Fingerprint(RunJobForEvents(Served(3, 1, resuming))), straight);
}

// Every step of one worker takes longer than a whole epoch of the others.
TEST(ParameterServerTrainTest, ASlowWorkerIsWaitedForAtTheEndAlone) {
  ProgramOptions options;
  options.environment = {
      {"TANDEM_FAULT", "point=push:0,rank=2,action=delay:0.2"}};
  ProgramResult program;
  const Events events = RunJobForEvents(
      Served(4, 1, {"--max_staleness=-1", "--log_every=1"}), &program, options);
  EXPECT_EQ(EventsOf(events, "step").size(), 16u);
  EXPECT_EQ(EventsOf(events, "step").back()["step"], 16);
}

TEST(ParameterServerTrainTest, AWorkerThatDiesInAPushStopsNobody) {
  for (const char* staleness : {"0", "2", "-1"}) {
    ProgramOptions options;
    options.environment = {
        {"TANDEM_FAULT", "point=push:1,rank=3,step=3,action=kill"}};
    ProgramResult program;
    const Events events = RunJobForEvents(
        Served(5, 2, {std::string("--max_staleness=") + staleness}), &program,
        options);
    EXPECT_THAT(program.err, HasSubstr("SIGKILL")) << staleness;
    EXPECT_THAT(program.err, HasSubstr("the others go on without it"));
    EXPECT_FALSE(Fingerprint(events).empty());
  }
}

// Without the launcher: ranks find out for themselves.
TEST(ParameterServerFaultTest, WorkersGoOnWithoutOne) {
  for (const std::string action : {"kill", "stop"}) {
    FaultRanks ranks(Served(0, 1,
                            {"--timeout=" +
                             std::to_string(action == "stop" ? kShortTimeout
                                                             : kLongTimeout)}),
                     2, "point=push:0,rank=2,step=3,action=" + action, {}, 4);
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
      Served(0, 2,
             {"--epochs=1000", "--model=" + model,
              "--timeout=" + std::to_string(timeout)}),
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

TEST(ParameterServerRefusalTest, WhatDoesNotGoTogetherIsNamed) {
  const std::vector<std::pair<Flags, std::string>> cases = {
      {Served(2, 2), "--servers=2 of 2 rank(s) leave no worker"},
      {Served(3, 1, {"--max_staleness=-2"}), "--max_staleness=-2"},
      {Served(3, 1, {"--comm_hook=fp16"}),
       "--comm_hook=fp16 is about replicas"},
      {Served(3, 1, {"--average_parameters_every=4"}),
       "--average_parameters_every=4 is about replicas"},
      {Served(3, 1, {"--clip_grad_norm=1", "--max_staleness=2"}),
       "--clip_grad_norm=1 needs all gradients"},
      {Served(3, 1, {"--trace_file=trace.json"}), "--trace_file="},
      {Replicated(2, {"--max_staleness=3"}),
       "--max_staleness=3 is for parameter servers"},
      {Replicated(2, {"--outer_momentum=0.9"}),
       "give --average_parameters_every=STEPS as well"},
  };
  for (const auto& [flags, message] : cases) {
    const ProgramResult result = RunProgram(kTrain, flags);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace tandem
