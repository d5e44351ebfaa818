// Dumps that are read, and what is reported of them: in words, and in PyTorch's
// form.

#include "tools/hang_diagnosis/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "tests/tools/hang_diagnosis/job.h"
#include "tools/hang_diagnosis/diagnose.h"
#include "tools/hang_diagnosis/history.h"
#include "tools/hang_diagnosis/pytorch_form.h"

namespace tandem::report_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Fault = Verdict::Fault;
using Json = nlohmann::ordered_json;

std::string NewFolder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

void WriteDump(const std::string& folder, int rank, const std::string& job,
               int64_t when, const std::string& name = "") {
  FlightDump dump;
  dump.rank = rank;
  dump.world_size = 12;
  dump.job = job;
  dump.dumped_ns = when;
  const std::string file =
      name.empty() ? "rank_" + std::to_string(rank) + ".json" : name;
  Write(folder + "/" + file, EncodeFlightDump(dump));
}

TEST(ReadDumpsTest, ThoseOfTheLastJobByRank) {
  const std::string folder = NewFolder("jobs");
  WriteDump(folder, 10, "new", 30);
  WriteDump(folder, 2, "new", 20);
  WriteDump(folder, 11, "old", 10);  // the old job had more ranks
  Write(folder + "/notes.txt", "");
  const absl::StatusOr<FoundDumps> found = ReadDumps(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_THAT(found->dumps, SizeIs(2));
  EXPECT_EQ(found->dumps[0].rank, 2);
  EXPECT_EQ(found->dumps[1].rank, 10);
  EXPECT_THAT(found->ignored,
              ElementsAre(HasSubstr("rank_11.json: of another job")));
}

TEST(ReadDumpsTest, WhatIsNoneIsIgnoredWithTheReason) {
  const std::string folder = NewFolder("broken");
  WriteDump(folder, 0, "job", 1);
  WriteDump(folder, 3, "job", 1, "rank_1.json");  // would be counted twice
  Write(folder + "/rank_2.json", "{}");
  Write(folder + "/rank_4.json", "");
  fs::create_directories(folder + "/rank_5.json");
  Write(folder + "/rank_6.json", "");
  fs::resize_file(folder + "/rank_6.json", (64 << 20) + 1);
  const absl::StatusOr<FoundDumps> found = ReadDumps(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->dumps, SizeIs(1));
  EXPECT_THAT(
      found->ignored,
      ElementsAre(HasSubstr("is the dump of rank 3"),
                  HasSubstr("\"version\" is missing"), HasSubstr("rank_4.json"),
                  HasSubstr("rank_5.json"), HasSubstr("more than any dump")));
}

TEST(ReadDumpsTest, AFolderWithoutAnyIsAnError) {
  const std::string folder = NewFolder("empty");
  EXPECT_EQ(ReadDumps(folder).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadDumps(folder + "/none").status(), Says("/empty/none"));
  Write(folder + "/rank_0.json", "3");
  EXPECT_THAT(ReadDumps(folder).status(),
              Says("rank_0.json: this is not a flight dump"));
}

TEST(SentenceTest, SaysWhoWaitsForWhatSinceWhen) {
  MadeJob job(3);
  const int world = job.AddGroup("world", {0, 1, 2});
  FlightEntry& first = job.Await(0, world, "all-reduce", {5});
  first.what = "bucket";
  first.index = 1;
  first.step = 3;
  job.Await(2, world, "all-reduce", {5});
  job.Act(1, 0, 2);
  for (int rank : {0, 1, 2}) job.Dump(rank, FlightTrigger::kTimeout);
  const Verdict verdict = Diagnose(JobHistory(job.Dumps()));
  EXPECT_EQ(Sentence(verdict),
            "Rank 1 is at fault (behind): it has not come to all-reduce #1 "
            "(bucket 1, step 3) of Float [5] in group \"world\". Ranks 0, 2 "
            "wait, since 1970-01-01 00:00:01.000 UTC (3.0 s before the dump). "
            "Rank 1 is in forward of microbatch 2 in stage 0.");
}

TEST(SentenceTest, NamesEveryFault) {
  Verdict verdict;
  verdict.culprits = {1, 3};
  verdict.waiting = {0};
  verdict.group = "world";
  verdict.operation.operation = "barrier";
  verdict.operation.sequence = 4;
  verdict.since_ns = 1;
  verdict.reason = "disk full";
  verdict.instead = verdict.operation;
  verdict.instead->operation = "broadcast";
  verdict.instead_group = "pipe";
  const auto sentence = [&](Fault fault) {
    verdict.fault = fault;
    return Sentence(verdict);
  };
  EXPECT_THAT(sentence(Fault::kFailed),
              HasSubstr("Ranks 1, 3 are at fault (failed): they failed by "
                        "themselves: disk full."));
  EXPECT_THAT(sentence(Fault::kAbsent), HasSubstr("they have left no dump"));
  EXPECT_THAT(sentence(Fault::kBehind),
              HasSubstr("they have not come to barrier #4 in group \"world\""));
  EXPECT_THAT(sentence(Fault::kLate),
              HasSubstr("they came to barrier #4 in group \"world\" when"));
  for (const Fault fault : {Fault::kOtherShape, Fault::kOtherOrder}) {
    EXPECT_THAT(sentence(fault),
                HasSubstr("they started broadcast #4 in group \"pipe\", where "
                          "rank 0 started barrier #4 in group \"world\""));
  }
  EXPECT_THAT(sentence(Fault::kOtherGroup),
              HasSubstr("they wait in broadcast #4 in group \"pipe\", and not "
                        "in barrier #4 in group \"world\""));
}

TEST(ReportTextTest, HasALineForEachRank) {
  MadeJob job(3);
  const int world = job.AddGroup("world", {0, 1, 2});
  job.Do(0, world, "all-reduce", {5});
  job.Await(0, world, "all-reduce", {7});
  job.Dump(0, FlightTrigger::kTimeout, "too late");
  job.Dump(2, FlightTrigger::kSignal, "asked");
  const JobHistory history(job.Dumps());
  const std::string text = ReportText(history, Diagnose(history));
  EXPECT_THAT(text, HasSubstr("too late\n    all-reduce #1 of Float [5]: done\n"
                              "    all-reduce #2 of Float [7]: started\n"));
  EXPECT_THAT(text, HasSubstr("rank 1: no dump\n"));
  EXPECT_THAT(text, HasSubstr(": asked\n"));
}

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
    job.Do(rank, world, "reduce-scatter", {4});
  }
  job.Await(0, world, "all-reduce", {5});
  for (int rank = 0; rank < 3; ++rank) job.Dump(rank, FlightTrigger::kSignal);
  const Json form = PyTorchForm(JobHistory(job.Dumps()), 0);
  EXPECT_EQ(form["version"], "2.10");
  EXPECT_EQ(form["pg_config"]["world/0"]["ranks"], "[0, 1, 2]");
  EXPECT_EQ(form["pg_config"]["world/0"]["desc"], "world");
  EXPECT_THAT(Column(form, "profiling_name"),
              ElementsAre("nccl:all_gather", "nccl:all_reduce_barrier",
                          "nccl:reduce_scatter", "nccl:all_reduce"));
  EXPECT_THAT(Column(form, "collective_seq_id"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Column(form, "record_id"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Column(form, "state"),
              ElementsAre("completed", "completed", "completed", "started"));
  EXPECT_EQ(form["entries"][0]["input_sizes"].dump(), "[[4]]");
  EXPECT_EQ(form["entries"][0]["output_sizes"].dump(), "[[3,4]]");
  EXPECT_EQ(form["entries"][1]["input_sizes"].dump(), "[[1]]");
  EXPECT_EQ(form["entries"][2]["input_sizes"].dump(), "[[3,4]]");
  EXPECT_EQ(form["entries"][2]["output_sizes"].dump(), "[[4]]");
  EXPECT_TRUE(form["entries"][3]["time_discovered_completed_ns"].is_null());
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

std::string Bytes(const char* text, size_t size) { return {text, size}; }

// Opcodes are those that pickletools.dis shows of Python's own protocol 2, but
// for the memo.
TEST(PickledTest, HasPythonsOpcodes) {
  EXPECT_EQ(Pickled(nullptr), "\x80\x02N.");
  EXPECT_EQ(Pickled(true), "\x80\x02\x88.");
  EXPECT_EQ(Pickled(false), "\x80\x02\x89.");
  EXPECT_EQ(Pickled(7), Bytes("\x80\x02J\x07\0\0\0.", 8));
  EXPECT_EQ(Pickled(-2), Bytes("\x80\x02J\xfe\xff\xff\xff.", 8));
  EXPECT_EQ(Pickled(int64_t{1} << 31),
            Bytes("\x80\x02\x8a\x08\0\0\0\x80\0\0\0\0.", 13));
  EXPECT_EQ(Pickled(-(int64_t{1} << 40)),
            Bytes("\x80\x02\x8a\x08\0\0\0\0\0\xff\xff\xff.", 13));
  EXPECT_EQ(Pickled(1.5), Bytes("\x80\x02G\x3f\xf8\0\0\0\0\0\0.", 12));
  EXPECT_EQ(Pickled("h\xc3\xa9"), Bytes("\x80\x02X\x03\0\0\0h\xc3\xa9.", 11));
}

TEST(PickledTest, NestsListsAndDicts) {
  EXPECT_EQ(Pickled(Json::array()), "\x80\x02](e.");
  EXPECT_EQ(Pickled(Json::object()), "\x80\x02}(u.");
  EXPECT_EQ(Pickled({{"a", Json::array({1, nullptr})}}),
            Bytes("\x80\x02}(X\x01\0\0\0a](J\x01\0\0\0Neu.", 21));
}

}  // namespace
}  // namespace tandem::report_test
