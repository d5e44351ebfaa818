// Jobs that lose ranks while the others go on (--replace_replicas): killed at
// each point of a step, all at once, while they take over, and too often.

#include <cmath>
#include <csignal>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/replaced_jobs.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Replicas of two devices each, in microbatches of one sample.
const Flags kPairs = {"--device=sim", "--strategy=hybrid",
                      "--devices_per_rank=2", "--microbatch_size=1"};
// The second device has all gradients of a step then, the first one has not.
constexpr char kBetweenDevices[] = "stage:0:backward:4";

// The job ends without the lost one, which its launcher would start much later.
// When a rank dies whose last all-reduce has begun, the others may have all
// that they need of it, and then go on after that step, whose loss nobody
// knows.
TEST(ReplacementTest, TheOthersGoOnWhereverARankDies) {
  const std::vector<std::string> points = {"step", "after_forward", "bucket:0",
                                           "before_optimizer",
                                           "after_optimizer"};
  std::vector<std::pair<Flags, std::string>> deaths = {
      {kPairs, kBetweenDevices}};
  for (const std::string& point : points) {
    deaths.emplace_back(Flags{}, point);
    deaths.emplace_back(kPairs, point);
  }
  int cells = 0;
  for (const auto& [place, point] : deaths) {
    const bool may_be_done =
        point != "step" && point != "after_forward" && point != kBetweenDevices;
    for (const int rank : {cells % 3, 2 - cells % 3}) {
      const std::string backend = cells++ % 2 == 0 ? "shm" : "gloo";
      SCOPED_TRACE(point + " on rank " + std::to_string(rank) + ", " + backend +
                   (place.empty() ? "" : ", pairs"));
      ProgramResult program;
      const Events events = RunJobForEvents(
          Replicas(
              3, Joined(place, {kNever, "--epochs=1", "--backend=" + backend})),
          &program, SlowFaultOf(Kill(point, rank, 2)));
      const std::string left = rank == 0 ? "1, 2" : rank == 1 ? "0, 2" : "0, 1";
      const std::string line = "ranks " + left + " of 3 go on after step ";
      const bool is_done =
          may_be_done && program.out.find(line + "2") != std::string::npos;
      EXPECT_THAT(
          program.out,
          AllOf(HasSubstr("lost rank " + std::to_string(rank) +
                          " (killed by signal 9 (SIGKILL))"),
                HasSubstr(line + (is_done ? "2" : "1") + ", with 10 samples")));
      std::vector<int> steps = {1};
      for (int step = is_done ? 3 : 2; step <= StepsInAll(3, is_done ? 2 : 1);
           ++step) {
        steps.push_back(step);
      }
      EXPECT_EQ(StepsOf(events), steps);
      EXPECT_EQ(EventsOf(events, "eval").size(), 1);
      EXPECT_THAT(program.err, HasSubstr("the other ranks go on without it"));
    }
  }
  std::cout << cells << " cells: points of a step, replicas of one device and "
            << "of two, two ranks each\n";
  EXPECT_EQ(cells, 22);
}

// What the epoch came to is owed then.
TEST(ReplacementTest, AnEvaluationThatADeathBreaksOffIsDoneByTheOthers) {
  for (const int rank : {0, 2}) {
    ProgramResult program;
    const Events events =
        RunJobForEvents(Replicas(3, {kNever, "--epochs=1"}), &program,
                        SlowFaultOf(Kill("evaluate:0", rank, 6)));
    EXPECT_THAT(program.out, HasSubstr(" of 3 go on after step 6"));
    EXPECT_EQ(StepsOf(events), (std::vector<int>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(EventsOf(events, "eval").size(), 1);
  }
}

// The mean over those there: two that are left of three do what two do that
// were never more, running statistics of thrown passes included.
TEST(ReplacementTest, WhoIsLeftTrainsAsIfTheyWereAll) {
  const Flags resnet = {"--model=resnet18", "--synthetic_shape=3,16,16",
                        "--max_steps=2", "--learning_rate=0.01"};
  int cells = 0;
  for (const auto& [model, point] : std::vector<std::pair<Flags, std::string>>{
           {{"--epochs=1"}, "after_forward"},
           {resnet, "after_forward"},
           {Joined(kPairs, {"--epochs=1"}), kBetweenDevices},
           {Joined(kPairs, Joined(resnet, {"--microbatch_size=5"})),
            "stage:0:backward:0"}}) {
    const std::string two = Fingerprint(RunJobForEvents(
        Joined(SmallJob({"--nproc_per_node=2", "--batch_size=10"}), model)));
    for (const int lost : {0, 2}) {
      EXPECT_EQ(Fingerprint(RunJobForEvents(
                    Replicas(3, Joined(model, {kNever})), nullptr,
                    SlowFaultOf(Kill(point, lost, 1)))),
                two)
          << "without rank " << lost << ", " << model.front();
      ++cells;
    }
  }
  EXPECT_EQ(cells, 8);
}

// Averages that hardly move stay those of the first step, whoever is lost
// later.
TEST(ReplacementTest, AveragesGoOn) {
  const auto loss = [](const Events& events) {
    return EventsOf(events, "eval").back()["loss"].get<double>();
  };
  const double first = loss(RunJobForEvents(
      SmallJob({"--nproc_per_node=3", "--batch_size=15", "--max_steps=1"})));
  const double all = loss(RunJobForEvents(
      SmallJob({"--nproc_per_node=3", "--batch_size=15", "--epochs=1"})));
  const double learned = std::abs(all - first);
  EXPECT_GT(learned, 1e-4);
  for (const int lost : {0, 2}) {
    const Events events = RunJobForEvents(
        Replicas(3, {kNever, "--epochs=1", "--ema_decay=0.9999999"}), nullptr,
        SlowFaultOf(Kill("after_forward", lost, 3)));
    EXPECT_NEAR(loss(events), first, 0.1 * learned) << "without rank " << lost;
  }
}

TEST(ReplacementTest, TheLostOneComesBackWithItsNeighboursState) {
  for (const Flags& place :
       {Flags{"--optimizer=adam"}, Flags{"--ema_decay=0.75"},
        Flags{"--device=sim", "--optimizer=sgd", "--momentum=0.9"},
        Joined(kPairs, {"--optimizer=adam", "--clip_grad_norm=1"}),
        Flags{"--reproducible", "--microbatch_size=1", "--backend=gloo"}}) {
    for (const int rank : {0, 2}) {
      RunUntil(Replicas(3, Endless(place)),
               SlowFaultOf(Kill("after_forward", rank, 3)),
               {"ranks 0, 1, 2 of 3 go on after step"});
    }
  }
}

TEST(ReplacementTest, TwoDieAtOnce) {
  RunUntil(Replicas(4, Endless({})),
           SlowFaultOf(Kill("step", 1, 3) + Kill("step", 3, 3)),
           {"ranks 0, 1, 2, 3 of 4 go on after step"});
}

TEST(ReplacementTest, ItDiesAgainWhileItTakesOver) {
  RunUntil(Replicas(3, Endless({})),
           SlowFaultOf(Kill("after_forward", 1, 2),
                       "point=take_over:1,rank=1,action=kill"),
           {"(replacement 2 of 5)", "ranks 0, 1, 2 of 3 go on after step"});
}

// All have its state until it is handed on.
TEST(ReplacementTest, TheNeighbourDiesWhileItHandsItsStateOn) {
  RunUntil(
      Replicas(3, Endless({})),
      SlowFaultOf(Kill("step", 2, 3) + "point=take_over:1,rank=0,action=kill;"),
      {"(replacement 2 of 5)", "ranks 0, 1, 2 of 3 go on after step"});
}

TEST(ReplacementTest, TooManyDeathsEndTheJobWithTheirCauses) {
  const ProgramResult result =
      RunProgram(kTrain, Replicas(3, Endless({"--replace_replicas=1"})),
                 SlowFaultOf(Kill("step", 1, 3),
                             "point=take_over:0,rank=1,action=exit:7"));
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("no further rank is replaced after 1; what ended each:"),
            HasSubstr("died: killed by signal 9 (SIGKILL)"),
            HasSubstr("died: exit code 7")));
}

// Then all start again from the last checkpoint.
TEST(ReplacementTest, RestartsComeAfterReplacements) {
  ProgramResult program;
  RunJobForEvents(
      Replicas(3, {"--epochs=1", "--replace_replicas=1", "--restart_delay=0",
                   "--max_restarts=1", "--save_every=2",
                   "--save_dir=" + NewFolder("replacement")}),
      &program, SlowFaultOf(Kill("step", 1, 4) + Kill("step", 2, 4)));
  EXPECT_THAT(program.err, HasSubstr("tandem: restart 1 of 1"));
  EXPECT_THAT(program.out, HasSubstr("at step 2"));
}

TEST(ReplacementTest, WithoutTheFlagADeathStopsAll) {
  ProgramOptions fault = SlowFaultOf(Kill("step", 1, 3));
  const ProgramResult result =
      RunProgram(kTrain, Replicas(3, {"--replace_replicas=0"}), fault);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.err, AllOf(HasSubstr("stopping the 2 that still run"),
                                Not(HasSubstr("go on"))));
}

TEST(ReplacementTest, WhatDoesNotGoTogetherIsRefused) {
  const std::vector<RefusalRow> rows = {
      {"OneRank", "--nproc_per_node=1", "this job has one alone"},
      {"Pipeline", "--pipe=3 --strategy=pipeline", "--strategy=pipeline"},
      {"Pipe", "--pipe=3",
       "this job has one alone: give --nproc_per_node=6 or more"},
      {"Profile", "--nproc_per_node=4 --pipe=2 --balance=profile",
       "--balance=profile was given"},
      {"DataParallel",
       "--device=sim --devices_per_rank=2 --strategy=data_parallel",
       "--strategy=data_parallel"},
      {"Nccl", "--device=sim --backend=sim_nccl", "--backend=sim_nccl"},
      {"Sharded", "--shard=optimizer --check_replicas_every=0",
       "--shard=optimizer"},
      {"Averaged", "--average_parameters_every=2 --check_replicas_every=0",
       "--average_parameters_every=2"},
      {"Ignored", "--parameters_to_ignore=fc1.weight",
       "--parameters_to_ignore=fc1.weight was given"},
      {"Joined", "--uneven_inputs=join --nodrop_last", "--uneven_inputs=join"},
      {"Nodes", "--nnodes=2 --node_rank=0 --master_addr=127.0.0.1",
       "started by 2 launchers"}};
  for (const RefusalRow& row : rows) {
    const ProgramResult result = ExpectRefused(Replicas(3, {}), row);
    EXPECT_THAT(result.err, HasSubstr("--replace_replicas=5"));
  }
  EXPECT_EQ(rows.size(), 11u);
}

}  // namespace
}  // namespace tandem
