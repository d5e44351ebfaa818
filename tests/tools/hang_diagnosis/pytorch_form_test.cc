#include "tools/hang_diagnosis/pytorch_form.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/hang_diagnosis/job.h"

namespace tandem::pytorch_form_test {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;

std::vector<Json> Column(const Json& form, const char* key) {
  std::vector<Json> column;
  for (const Json& each : form["entries"]) column.push_back(each[key]);
  return column;
}

TEST(PyTorchFormTest, HasCollectivesAsTheyAreNamedThere) {
  MadeJob job(3);
  const int world = job.AddGroup("world", {0, 1, 2});
  for (int rank = 0; rank < 3; ++rank) {
    job.Do(rank, world, "all-gather", {4});
    job.Act(rank, 0, 0);  // left out
    job.Do(rank, world, "barrier", {});
  }
  job.Await(0, world, "all-reduce", {5});
  for (int rank = 0; rank < 3; ++rank) job.Dump(rank, FlightTrigger::kSignal);
  const Json form = PyTorchForm(JobHistory(job.Dumps()), 0);
  EXPECT_EQ(form["version"], "2.10");
  EXPECT_EQ(form["pg_config"]["world/0"]["ranks"], "[0, 1, 2]");
  EXPECT_EQ(form["pg_config"]["world/0"]["desc"], "world");
  EXPECT_THAT(Column(form, "profiling_name"),
              ElementsAre("nccl:all_gather", "nccl:all_reduce_barrier",
                          "nccl:all_reduce"));
  EXPECT_THAT(Column(form, "collective_seq_id"), ElementsAre(1, 2, 3));
  EXPECT_THAT(Column(form, "record_id"), ElementsAre(0, 1, 2));
  EXPECT_THAT(Column(form, "state"),
              ElementsAre("completed", "completed", "started"));
  EXPECT_EQ(form["entries"][0]["input_sizes"].dump(), "[[4]]");
  EXPECT_EQ(form["entries"][0]["output_sizes"].dump(), "[[3,4]]");
  EXPECT_EQ(form["entries"][1]["input_sizes"].dump(), "[[1]]");
  EXPECT_TRUE(form["entries"][2]["time_discovered_completed_ns"].is_null());
}

// Sent under one tag after the other, received the other way round.
TEST(PyTorchFormTest, NumbersTheEndsOfAMessageAlike) {
  MadeJob job(7);
  const int pipe = job.AddGroup("pipe", {2, 5});
  job.Message(5, FlightKind::kSend, pipe, 2, /*tag=*/8, 1);
  job.Message(5, FlightKind::kSend, pipe, 2, /*tag=*/9, 1);
  job.Message(2, FlightKind::kReceive, pipe, 5, /*tag=*/9, 1);
  job.Message(2, FlightKind::kReceive, pipe, 5, /*tag=*/8, 1);
  for (int rank : {2, 5}) job.Dump(rank, FlightTrigger::kSignal);
  const JobHistory history(job.Dumps());
  const Json sender = PyTorchForm(history, 5);
  const Json receiver = PyTorchForm(history, 2);
  EXPECT_THAT(Column(sender, "profiling_name"),
              ElementsAre("nccl:send 1->0", "nccl:send 1->0"));
  EXPECT_THAT(Column(receiver, "profiling_name"),
              ElementsAre("nccl:recv 0<-1", "nccl:recv 0<-1"));
  EXPECT_THAT(Column(sender, "p2p_seq_id"), ElementsAre(1, 2));
  EXPECT_THAT(Column(receiver, "p2p_seq_id"), ElementsAre(2, 1));
  EXPECT_EQ(receiver["pg_config"]["pipe/0 5->2"]["ranks"], "[2, 5]");
}

TEST(PyTorchFormTest, LeavesOutWhatOneRankHasLost) {
  MadeJob job(2);
  const int world = job.AddGroup("world", {0, 1});
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 1; i <= 3; ++i) job.Do(rank, world, "all-reduce", {i});
    job.Dump(rank, FlightTrigger::kSignal);
  }
  std::vector<FlightDump> dumps = job.Dumps();
  dumps[1].entries.erase(dumps[1].entries.begin());
  EXPECT_THAT(Column(PyTorchForm(JobHistory(dumps), 0), "collective_seq_id"),
              ElementsAre(2, 3));
}

TEST(PyTorchFormTest, EndsWhereTheFirstRankGaveUp) {
  MadeJob job(2);
  const int world = job.AddGroup("world", {0, 1});
  job.Await(0, world, "all-reduce", {5});
  job.Dump(0, FlightTrigger::kTimeout);
  job.Await(1, world, "all-reduce", {5});
  job.Dump(1, FlightTrigger::kFailed);
  const JobHistory history(job.Dumps());
  EXPECT_EQ(PyTorchForm(history, 0)["entries"].size(), 1u);
  EXPECT_EQ(PyTorchForm(history, 1)["entries"].size(), 0u);
}

}  // namespace
}  // namespace tandem::pytorch_form_test
