#include "tools/hang_diagnosis/diagnose.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/hang_diagnosis/job.h"
#include "tools/hang_diagnosis/report.h"

namespace tandem::diagnose_test {
namespace {

using Fault = Verdict::Fault;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Verdict VerdictOn(const MadeJob& job) {
  return Diagnose(JobHistory(job.Dumps()));
}

TEST(DiagnoseNothingTest, NoDumpsShowNoHang) {
  EXPECT_EQ(VerdictOn(MadeJob(0)).fault, Fault::kNone);
  EXPECT_THAT(FindWaits(JobHistory({})), IsEmpty());
  EXPECT_THAT(Sentence(Verdict()), HasSubstr("no hang"));
}

TEST(DiagnoseNothingTest, OneRankWaitsForNobody) {
  MadeJob job(1);
  job.AddGroup("world", {0});
  job.Act(0, 0, 2);
  job.Dump(0, FlightTrigger::kSignal);
  EXPECT_EQ(VerdictOn(job).fault, Fault::kNone);
}

// --flight_entries=0, and a wait that ran out: that is no sign that all is
// well.
TEST(DiagnoseNothingTest, DumpsWithoutEntriesShowNothing) {
  MadeJob job(2);
  job.Dump(0, FlightTrigger::kTimeout, "timed out");
  const Verdict verdict = VerdictOn(job);
  EXPECT_EQ(verdict.fault, Fault::kUnknown);
  EXPECT_THAT(Sentence(verdict), AllOf(HasSubstr("is not known"),
                                       HasSubstr("--flight_entries=0")));
  MadeJob failed(2);
  failed.Dump(1, FlightTrigger::kGaveUp, "disk full");
  failed.Dump(0, FlightTrigger::kTimeout, "timed out");
  EXPECT_EQ(VerdictOn(failed).culprits, std::vector<int>{1});
}

// One of so many ranks is at fault. All have done an all-reduce of [5] and one
// of [7] together, and do so in every step.
class CulpritTest : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  CulpritTest()
      : ranks_(GetParam().first), culprit_(GetParam().second), job_(ranks_) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back(rank);
    world_ = job_.AddGroup("world", all);
    other_ = job_.AddGroup("data of stage 0", all);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank != culprit_) others_.push_back(rank);
      job_.Do(rank, world_, "all-reduce", {5});
      job_.Do(rank, world_, "all-reduce", {7});
    }
  }

  void OthersAwait(const std::vector<int64_t>& sizes) {
    for (int rank : others_) job_.Await(rank, world_, "all-reduce", sizes);
  }
  void DumpOthers() {
    for (int rank : others_) job_.Dump(rank, FlightTrigger::kTimeout, "late");
  }
  void Expect(Fault fault) {
    const Verdict verdict = VerdictOn(job_);
    EXPECT_EQ(verdict.fault, fault) << Sentence(verdict);
    EXPECT_THAT(verdict.culprits, ElementsAre(culprit_)) << Sentence(verdict);
    EXPECT_EQ(verdict.waiting, others_);
    EXPECT_EQ(verdict.group, "world");
    EXPECT_EQ(verdict.operation.operation, "all-reduce");
    EXPECT_EQ(verdict.operation.sequence, 3);
    EXPECT_THAT(verdict.operation.sizes, ElementsAre(5));
    EXPECT_GT(verdict.since_ns, 0);
    EXPECT_GT(verdict.until_ns, verdict.since_ns);
  }

  const int ranks_;
  const int culprit_;
  MadeJob job_;
  std::vector<int> others_;
  int world_ = 0;
  int other_ = 0;
};

TEST_P(CulpritTest, Absent) {
  OthersAwait({5});
  DumpOthers();
  Expect(Fault::kAbsent);
}

TEST_P(CulpritTest, Behind) {
  OthersAwait({5});
  DumpOthers();
  job_.Act(culprit_, 0, 2);
  job_.Dump(culprit_, FlightTrigger::kSignal);
  Expect(Fault::kBehind);
  EXPECT_EQ(VerdictOn(job_).instead->ToString(),
            "forward of microbatch 2 in stage 0");
}

// Everybody has started the collective that the others wait in, and they have
// started the next.
TEST_P(CulpritTest, BehindInTheNextOfTheGroup) {
  job_.Start(culprit_, world_, "all-reduce", {9});
  for (int rank : others_) job_.Await(rank, world_, "all-reduce", {9});
  for (int rank : others_) job_.Start(rank, world_, "all-reduce", {5});
  DumpOthers();
  job_.Dump(culprit_, FlightTrigger::kSignal);
  const Verdict verdict = VerdictOn(job_);
  EXPECT_EQ(verdict.fault, Fault::kBehind) << Sentence(verdict);
  EXPECT_THAT(verdict.culprits, ElementsAre(culprit_));
  EXPECT_EQ(verdict.operation.sequence, 4);
}

TEST_P(CulpritTest, StartedItAndLeftItAlone) {
  job_.Start(culprit_, world_, "all-reduce", {5});
  OthersAwait({5});
  DumpOthers();
  job_.Act(culprit_, 0, 2);
  job_.Dump(culprit_, FlightTrigger::kSignal);
  Expect(Fault::kBehind);
  EXPECT_THAT(Sentence(VerdictOn(job_)), HasSubstr("left it alone"));
}

TEST_P(CulpritTest, Late) {
  OthersAwait({5});
  DumpOthers();
  job_.Await(culprit_, world_, "all-reduce", {5});
  job_.Dump(culprit_, FlightTrigger::kFailed);
  Expect(Fault::kLate);
}

TEST_P(CulpritTest, OtherShape) {
  OthersAwait({5});
  job_.Await(culprit_, world_, "all-reduce", {3});
  DumpOthers();
  job_.Dump(culprit_, FlightTrigger::kFailed);
  Expect(Fault::kOtherShape);
}

TEST_P(CulpritTest, OtherOrder) {
  OthersAwait({5});
  for (int rank : others_) job_.Start(rank, world_, "all-reduce", {7});
  // It has done as many as the others have: what is done before tells nothing.
  job_.Await(culprit_, world_, "all-reduce", {7});
  job_.Start(culprit_, world_, "all-reduce", {5});
  DumpOthers();
  job_.Dump(culprit_, FlightTrigger::kTimeout);
  const Verdict verdict = VerdictOn(job_);
  EXPECT_EQ(verdict.fault, Fault::kOtherOrder) << Sentence(verdict);
  if (ranks_ > 2) {
    EXPECT_THAT(verdict.culprits, ElementsAre(culprit_));
  }
}

TEST_P(CulpritTest, OtherOperation) {
  OthersAwait({5});
  job_.Await(culprit_, world_, "barrier", {});
  DumpOthers();
  job_.Dump(culprit_, FlightTrigger::kTimeout);
  Expect(Fault::kOtherOrder);
}

TEST_P(CulpritTest, OtherGroup) {
  OthersAwait({5});
  job_.Await(culprit_, other_, "all-reduce", {5});
  DumpOthers();
  job_.Dump(culprit_, FlightTrigger::kTimeout);
  Expect(Fault::kOtherGroup);
  EXPECT_EQ(VerdictOn(job_).instead_group, "data of stage 0");
}

TEST_P(CulpritTest, Failed) {
  OthersAwait({5});
  job_.Dump(culprit_, FlightTrigger::kGaveUp, "disk full");
  DumpOthers();
  Expect(Fault::kFailed);
  EXPECT_EQ(VerdictOn(job_).reason, "disk full");
}

// It gave up because the others had.
TEST_P(CulpritTest, BehindAndGivesUpAfterTheOthers) {
  OthersAwait({5});
  DumpOthers();
  job_.Dump(culprit_, FlightTrigger::kGaveUp, "the store is gone");
  Expect(Fault::kBehind);
}

// The ring of every rank has lost the beginning, and the ranks have lost
// different parts.
TEST_P(CulpritTest, BehindWhereRingsHaveLostMuch) {
  OthersAwait({5});
  DumpOthers();
  job_.Act(culprit_, 0, 2);
  job_.Dump(culprit_, FlightTrigger::kSignal);
  std::vector<FlightDump> dumps = job_.Dumps();
  for (FlightDump& each : dumps) {
    const int lost = each.rank % 2 == 0 ? 1 : 2;
    each.entries.erase(each.entries.begin(), each.entries.begin() + lost);
  }
  const Verdict verdict = Diagnose(JobHistory(dumps));
  EXPECT_EQ(verdict.fault, Fault::kBehind) << Sentence(verdict);
  EXPECT_THAT(verdict.culprits, ElementsAre(culprit_));
}

INSTANTIATE_TEST_SUITE_P(Ranks, CulpritTest,
                         testing::Values(std::pair(2, 0), std::pair(2, 1),
                                         std::pair(3, 0), std::pair(3, 1),
                                         std::pair(3, 2), std::pair(7, 0),
                                         std::pair(7, 3), std::pair(7, 6)));

// Stages of a pipeline of three ranks that send to the next one.
class PipelineTest : public testing::Test {
 protected:
  PipelineTest() : job_(3) { pipe_ = job_.AddGroup("pipe", {0, 1, 2}); }

  FlightEntry& Send(int rank, int tag) {
    return job_.Message(rank, FlightKind::kSend, pipe_, rank + 1, tag, 1);
  }
  FlightEntry& Receive(int rank, int tag) {
    return job_.Message(rank, FlightKind::kReceive, pipe_, rank - 1, tag, 1);
  }

  MadeJob job_;
  int pipe_ = 0;
};

// Rank 2 waits for rank 1, and that for rank 0.
TEST_F(PipelineTest, TheEndOfAChainIsAtFault) {
  job_.Act(0, 0, 1);
  MadeJob::Wait(Receive(1, 1));
  MadeJob::Wait(Receive(2, 1));
  for (int rank = 2; rank >= 0; --rank) {
    job_.Dump(rank, FlightTrigger::kTimeout);
  }
  const Verdict verdict = VerdictOn(job_);
  EXPECT_EQ(verdict.fault, Fault::kBehind);
  EXPECT_THAT(verdict.culprits, ElementsAre(0));
  EXPECT_THAT(verdict.waiting, ElementsAre(1, 2));
  EXPECT_EQ(verdict.operation.ToString(), "receive from rank 0 of Float [4]");
  EXPECT_EQ(verdict.instead->ToString(), "forward of microbatch 1 in stage 0");
}

// It wakes up when the others have given up, and then waits for them.
TEST_F(PipelineTest, WhoWaitsForRanksThatHaveGivenUpIsLate) {
  MadeJob::Wait(Receive(1, 1));
  job_.Dump(1, FlightTrigger::kTimeout);
  Send(0, 1);
  MadeJob::Wait(
      job_.Message(0, FlightKind::kReceive, pipe_, /*peer=*/1, /*tag=*/5, 1));
  job_.Dump(0, FlightTrigger::kFailed);
  const Verdict verdict = VerdictOn(job_);
  EXPECT_EQ(verdict.fault, Fault::kLate) << Sentence(verdict);
  EXPECT_THAT(verdict.culprits, ElementsAre(0));
}

TEST_F(PipelineTest, AMessageThatWasSentIsNotMissing) {
  Send(0, 1);
  MadeJob::Wait(Receive(1, 1));
  MadeJob::Wait(Receive(1, 2));
  job_.Dump(0, FlightTrigger::kSignal);
  job_.Dump(1, FlightTrigger::kTimeout);
  const Verdict verdict = VerdictOn(job_);
  EXPECT_THAT(verdict.culprits, ElementsAre(0));
  EXPECT_EQ(verdict.operation.tag, 2);
}

// The same tag in the next step is another message.
TEST_F(PipelineTest, MessagesOfATagAreCounted) {
  Send(0, 1);
  FlightEntry& second = Receive(1, 1);
  second.sequence = 2;
  MadeJob::Wait(second);
  job_.Dump(0, FlightTrigger::kSignal);
  job_.Dump(1, FlightTrigger::kTimeout);
  EXPECT_THAT(VerdictOn(job_).culprits, ElementsAre(0));
}

TEST_F(PipelineTest, AnotherSizeIsTheReceiversFault) {
  Send(0, 1);
  FlightEntry& other = Receive(1, 1);
  other.sizes = {3};
  MadeJob::Wait(other);
  job_.Dump(0, FlightTrigger::kSignal);
  job_.Dump(1, FlightTrigger::kTimeout);
  const Verdict verdict = VerdictOn(job_);
  EXPECT_EQ(verdict.fault, Fault::kOtherShape);
  EXPECT_THAT(verdict.culprits, ElementsAre(1));
}

TEST_F(PipelineTest, WhatNobodyWaitsForIsNoWait) {
  Send(0, 1);  // started; the sender computes
  job_.Dump(0, FlightTrigger::kSignal);
  job_.Dump(1, FlightTrigger::kSignal);
  EXPECT_EQ(VerdictOn(job_).fault, Fault::kNone);
}

TEST(MismatchTest, TheEarliestIsNamed) {
  MadeJob job(3);
  const int world = job.AddGroup("world", {0, 1, 2});
  for (int rank = 0; rank < 3; ++rank) {
    job.Do(rank, world, "all-reduce",
           {rank == 2 ? 3 : 5});  // by chance it ends
  }
  for (int rank = 0; rank < 2; ++rank) {
    job.Await(rank, world, "barrier", {});
    job.Dump(rank, FlightTrigger::kTimeout);
  }
  job.Dump(2, FlightTrigger::kTimeout);
  const Verdict verdict = VerdictOn(job);
  EXPECT_EQ(verdict.fault, Fault::kOtherShape);
  EXPECT_THAT(verdict.culprits, ElementsAre(2));
  EXPECT_EQ(verdict.operation.sequence, 1);
}

// Buckets of one size: only their numbers tell that they are not the same.
TEST(MismatchTest, AnotherBucketIsAnotherOrder) {
  MadeJob job(3);
  const int world = job.AddGroup("world", {0, 1, 2});
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < 2; ++i) {
      FlightEntry& entry = job.Start(rank, world, "all-reduce", {5});
      entry.what = "bucket";
      entry.index = rank == 1 ? 1 - i : i;
    }
    job.Dump(rank, FlightTrigger::kTimeout);
  }
  const Verdict verdict = VerdictOn(job);
  EXPECT_EQ(verdict.fault, Fault::kOtherOrder);
  EXPECT_THAT(verdict.culprits, ElementsAre(1));
  EXPECT_THAT(Sentence(verdict), HasSubstr("started all-reduce #1 (bucket 1)"));
}

}  // namespace
}  // namespace tandem::diagnose_test
