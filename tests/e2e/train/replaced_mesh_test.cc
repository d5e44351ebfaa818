// Replicas of several ranks, stages of a pipeline or parts of layers, that lose
// a rank while the others go on: killed at each point of a step, and come back
// as a whole.

#include <iostream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/replaced_jobs.h"
#include "tests/e2e/train/runs.h"

namespace tandem::replaced_mesh_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTexts[] = " --dataset=synthetic_tokens --synthetic_shape=8";

struct ReplicaMesh {
  std::string name;
  int replicas;
  int ranks;  // of each
  std::string flags;
  std::string point;  // one of its own,
  int place = 0;      // at which place of a replica
};

// For GoogleTest.
void PrintTo(const ReplicaMesh& mesh, std::ostream* out) { *out << mesh.name; }

const std::vector<ReplicaMesh>& Meshes() {
  static const auto* const meshes = new std::vector<ReplicaMesh>{
      {"Pipe2", 3, 2, "--pipe=2 --microbatch_size=1", "stage:1:forward:2", 1},
      {"TiedPipe2", 2, 2,
       absl::StrCat("--model=gpt_tiny_tied --pipe=2 --microbatch_size=1 "
                    "--optimizer=adam --clip_grad_norm=1",
                    kTexts),
       "stage:0:backward:4"},
      {"Tensor2", 3, 2,
       absl::StrCat("--model=gpt_tiny --tensor=2 --optimizer=adam", kTexts),
       "tensor_parallel"},
      {"Pipe2Tensor2", 2, 4,
       absl::StrCat("--model=gpt_tiny --tensor=2 --pipe=2 --microbatch_size=1",
                    kTexts),
       "tensor_parallel"},
      {"Pipe2OfTwoDevices", 2, 2,
       "--pipe=2 --device=sim --devices_per_rank=2 --microbatch_size=1 "
       "--schedule=zb_h1",
       "stage:3:forward:1", 1},
  };
  return *meshes;
}

// "ranks 0, 1", as jobs name them.
std::string Names(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", "));
}

struct Death {
  ReplicaMesh mesh;
  int rank = 0;

  // The ranks of the other replicas, and those of its own but itself.
  std::vector<int> Others() const { return Select(false); }
  std::vector<int> Neighbours() const { return Select(true); }

 private:
  std::vector<int> Select(bool of_its_replica) const {
    std::vector<int> ranks;
    for (int each = 0; each < mesh.replicas * mesh.ranks; ++each) {
      const bool is_of_it = each / mesh.ranks == rank / mesh.ranks;
      if (each != rank && is_of_it == of_its_replica) ranks.push_back(each);
    }
    return ranks;
  }
};

Flags JobOf(const ReplicaMesh& mesh, const Flags& more) {
  return Joined(Replicas(mesh.replicas, Words(mesh.flags), mesh.ranks), more);
}

class ReplacedMeshTest : public testing::TestWithParam<ReplicaMesh> {};

// All ranks meet once they have their gradients. Before that the step is not
// done on any; after it, it may be.
TEST_P(ReplacedMeshTest, OtherReplicasGoOnWhereverARankDies) {
  const ReplicaMesh& mesh = GetParam();
  const int ranks = mesh.replicas * mesh.ranks;
  int cells = 0;
  for (const std::string& point :
       std::vector<std::string>{"step", mesh.point, "bucket:0", "updates_last",
                                "before_optimizer", "after_optimizer"}) {
    const bool may_be_done =
        point == "before_optimizer" || point == "after_optimizer";
    Death death = {mesh, cells % 2 == 0 ? 0 : ranks - 1};
    if (point == mesh.point) death.rank = mesh.place;
    const std::string backend = cells++ % 2 == 0 ? "shm" : "gloo";
    SCOPED_TRACE(absl::StrCat(point, " on rank ", death.rank, ", ", backend));
    ProgramResult program;
    const Events events = RunJobForEvents(
        JobOf(mesh, {kNever, "--epochs=1", "--backend=" + backend}), &program,
        SlowFaultOf(Kill(point, death.rank, 2)));
    const std::string line = absl::StrCat(Names(death.Others()), " of ", ranks,
                                          " go on after step ");
    const bool is_done =
        may_be_done && program.out.find(line + "2") != std::string::npos;
    EXPECT_THAT(
        program.out,
        AllOf(HasSubstr(absl::StrCat("lost rank ", death.rank,
                                     " (killed by signal 9 (SIGKILL))")),
              HasSubstr(Names(death.Neighbours()) + " wait"),
              HasSubstr(absl::StrCat(line, is_done ? 2 : 1, ", with ",
                                     5 * (mesh.replicas - 1), " samples"))));
    std::vector<int> steps = {1};
    for (int step = is_done ? 3 : 2;
         step <= StepsInAll(mesh.replicas, is_done ? 2 : 1); ++step) {
      steps.push_back(step);
    }
    EXPECT_EQ(StepsOf(events), steps);
    EXPECT_EQ(EventsOf(events, "eval").size(), 1);
  }
  std::cout << cells << " points of a step\n";
  EXPECT_EQ(cells, 6);
}

// The replicas that are left do what they do where there never were more.
TEST_P(ReplacedMeshTest, WhoIsLeftTrainsAsIfTheyWereAll) {
  ReplicaMesh mesh = GetParam();
  const Flags lossy = JobOf(mesh, {kNever, "--epochs=1"});
  --mesh.replicas;
  const std::string fewer = Fingerprint(
      RunJobForEvents(JobOf(mesh, {"--replace_replicas=0",
                                   "--check_replicas_every=0", "--epochs=1"})));
  for (const int lost : {0, (mesh.replicas + 1) * mesh.ranks - 1}) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(
                  lossy, nullptr, SlowFaultOf(Kill("updates_last", lost, 1)))),
              fewer)
        << "without rank " << lost;
  }
}

// With the lost rank's neighbours, each with the state of one that has the same
// of the model.
TEST_P(ReplacedMeshTest, AReplicaComesBackAsAWhole) {
  const ReplicaMesh& mesh = GetParam();
  const int ranks = mesh.replicas * mesh.ranks;
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  for (const int rank : {0, ranks - 1}) {
    RunUntil(JobOf(mesh, Endless({"--ema_decay=0.75"})),
             SlowFaultOf(Kill("updates_last", rank, 3)),
             {absl::StrCat(Names(all), " of ", ranks, " go on after step")});
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ReplacedMeshTest, testing::ValuesIn(Meshes()),
                         [](const auto& info) { return info.param.name; });

// A stage of each replica is lost: what is left makes one.
TEST(ReplacedMeshCellsTest, WhatIsLeftOfTwoReplicasMakesOne) {
  ReplicaMesh mesh = Meshes()[1];
  const Flags lossy = JobOf(mesh, {kNever, "--epochs=1"});
  --mesh.replicas;
  const std::string fewer = Fingerprint(
      RunJobForEvents(JobOf(mesh, {"--replace_replicas=0", "--epochs=1",
                                   "--check_replicas_every=0"})));
  ProgramResult program;
  EXPECT_EQ(
      Fingerprint(RunJobForEvents(lossy, &program,
                                  SlowFaultOf(Kill("updates_last", 1, 1) +
                                              Kill("updates_last", 2, 1)))),
      fewer);
  EXPECT_THAT(program.out, HasSubstr("ranks 0, 3 of 4 go on after step 0"));
}

// Then all start again from the last checkpoint.
TEST(ReplacedMeshCellsTest, WithoutAWholeReplicaTheJobIsRestarted) {
  ProgramResult program;
  RunJobForEvents(
      JobOf(Meshes().front(),
            {"--epochs=1", "--restart_delay=0", "--max_restarts=1",
             "--save_every=2", "--save_dir=" + NewFolder("replaced_mesh")}),
      &program,
      SlowFaultOf(Kill("step", 1, 4) + Kill("step", 3, 4) +
                  Kill("step", 5, 4)));
  EXPECT_THAT(program.err, HasSubstr("tandem: restart 1 of 1"));
  EXPECT_THAT(program.out, HasSubstr("at step 2"));
}

}  // namespace
}  // namespace tandem::replaced_mesh_test
