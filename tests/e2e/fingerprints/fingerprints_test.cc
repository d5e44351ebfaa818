// The list of fingerprints, and the jobs that //tests/e2e/fingerprints runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/e2e/fingerprints/fingerprint_jobs.h"
#include "tests/e2e/fingerprints/fingerprint_list.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FingerprintList ListOf(
    const std::vector<std::pair<std::string, std::string>>& jobs) {
  return {"Intel Xeon (avx2)", jobs};
}

TEST(FingerprintListTest, IsReadAsItWasWritten) {
  const FingerprintList list = ListOf({{"a/b", "12"}, {"c/d", kFailed}});
  EXPECT_EQ(FingerprintText(list), "# Intel Xeon (avx2)\na/b 12\nc/d failed\n");
  const auto read = ParseFingerprints(FingerprintText(list));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->processor, list.processor);
  EXPECT_EQ(read->jobs, list.jobs);
}

TEST(FingerprintListTest, WhatIsNoListIsRefused) {
  for (const char* text : {"", "a/b 12\n", "# Intel\na/b\n", "# Intel\na b c\n",
                           "{\"event\": \"summary\"}\n"}) {
    EXPECT_EQ(ParseFingerprints(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(FingerprintListTest, JobsThatDifferHaveFailedOrAreGoneAreTold) {
  const FingerprintList recorded = ListOf({{"same", "1"},
                                           {"other", "2"},
                                           {"fails", "3"},
                                           {"gone", "4"},
                                           {"failed", kFailed}});
  const FingerprintList found = ListOf({{"same", "1"},
                                        {"other", "5"},
                                        {"fails", kFailed},
                                        {"failed", kFailed},
                                        {"new", "6"}});
  EXPECT_THAT(DifferentFingerprints(recorded, found),
              ElementsAre("other is 5, was 2", "fails has failed",
                          "failed has failed", "gone is gone, was 4"));
  EXPECT_THAT(DifferentFingerprints(FingerprintList(), found),
              ElementsAre("fails has failed", "failed has failed"));
  EXPECT_THAT(
      DifferentFingerprints(ListOf({{"same", "1"}}), ListOf({{"same", "1"}})),
      IsEmpty());
}

TEST(FingerprintJobsTest, NamesAreUniqueAndWithoutSpaces) {
  const std::vector<FingerprintJob> jobs = FingerprintJobs("text");
  EXPECT_GE(jobs.size(), 60u);
  std::set<std::string> names;
  for (const FingerprintJob& job : jobs) {
    EXPECT_TRUE(names.insert(job.name).second) << job.name;
    EXPECT_EQ(job.name.find(' '), std::string::npos) << job.name;
  }
}

FingerprintJob JobNamed(const std::string& name) {
  for (const FingerprintJob& job : FingerprintJobs("text")) {
    if (job.name == name) return job;
  }
  ADD_FAILURE() << "no job is named " << name;
  return {};
}

std::string PrintOf(const FingerprintJob& job) {
  const absl::StatusOr<std::string> print = RunForFingerprint(kTrain, job);
  EXPECT_TRUE(print.ok()) << job.name << ": " << print.status();
  return print.value_or("");
}

TEST(FingerprintRunTest, EqualJobsHaveEqualFingerprintsAndAnotherSeedHasNot) {
  for (const char* name : {"layout/ddp_2", "schedule/zb_v"}) {
    const FingerprintJob job = JobNamed(name);
    const std::string print = PrintOf(job);
    EXPECT_EQ(print.size(), 64u) << name;
    EXPECT_EQ(PrintOf(job), print) << name;
    FingerprintJob other = job;
    other.flags.push_back("--seed=1");
    EXPECT_NE(PrintOf(other), print) << name;
  }
}

// Its second part goes on from the first one, and both end as one job does.
TEST(FingerprintRunTest, AResumedJobGoesOnFromItsFirstPart) {
  FingerprintJob job = JobNamed("resume/single");
  const std::string print = PrintOf(job);
  job.first_part.push_back("--learning_rate=0.01");
  EXPECT_NE(PrintOf(job), print);
  job.first_part.clear();
  EXPECT_EQ(PrintOf(job), print);
}

TEST(FingerprintRunTest, AJobThatFailsSaysWhyAndWithWhichFlags) {
  FingerprintJob job = JobNamed("layout/single");
  job.flags.push_back("--batch_size=0");
  const auto print = RunForFingerprint(kTrain, job);
  EXPECT_THAT(std::string(print.status().message()),
              AllOf(HasSubstr("exit code 2: "), HasSubstr("--batch_size=0: "),
                    HasSubstr("train --model=")));
}

TEST(FingerprintRunTest, EveryJobHasAFingerprint) {
  for (const FingerprintJob& job : FingerprintJobs(NewText("text"))) {
    EXPECT_EQ(PrintOf(job).size(), 64u) << job.name;
  }
}

}  // namespace
}  // namespace tandem
