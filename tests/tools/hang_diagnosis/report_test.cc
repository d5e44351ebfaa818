#include "tools/hang_diagnosis/report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/hang_diagnosis/job.h"
#include "tools/hang_diagnosis/diagnose.h"

namespace tandem::report_test {
namespace {

using Fault = Verdict::Fault;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace tandem::report_test
