// Jobs as rows of a table: what a job is compared with, from which checkpoints
// it goes on, what is refused. One runner for all. For tests.

#ifndef TANDEM_TESTS_E2E_TRAIN_JOB_TABLE_H_
#define TANDEM_TESTS_E2E_TRAIN_JOB_TABLE_H_

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {

// A run that succeeded.
struct JobRun {
  Events events;
  ProgramResult program;
};

// Runs a job, or returns what an earlier run with the same flags gave: none of
// them names a file.
const JobRun& RunOnce(const Flags& flags);

// Expects of a run what one should do beside the other.
using Comparison =
    std::function<void(const JobRun& run, const JobRun& expected)>;

void SameBits(const JobRun& run, const JobRun& expected);
void OtherBits(const JobRun& run, const JobRun& expected);
// The bits, and each step's losses as they were written.
void SameLines(const JobRun& run, const JobRun& expected);
// Events of this kind, or steps and evaluations, have the same losses to this
// relative difference.
Comparison SameLosses(double tolerance, const std::string& kind = "");
Comparison SameLastLoss(double tolerance);
// The run has so many steps, and a fingerprint.
Comparison HasSteps(size_t steps);
// The run reports this strategy, the other one that.
Comparison HasStrategy(const std::string& run, const std::string& expected);
Comparison Both(const Comparison& first, const Comparison& second);

// In each place the job with `beside` is what the job with each of `others` is
// compared with. All are flags as one types them.
struct SameRow {
  std::string name;
  Flags job;
  std::vector<std::string> others;
  Comparison comparison = SameBits;
  std::vector<std::string> places = {""};
  std::string beside = "";
};

void ExpectSame(const SameRow& row);

// A job that was stopped goes on with the bits of one that was not. Each layout
// of `from` saves, `saving` says when; each of `to` goes on from each step, or,
// if there is none, from the folder.
struct ResumeRow {
  std::string name;
  Flags job;
  std::vector<std::string> from;
  std::string saving;
  std::vector<int> steps;
  std::vector<std::string> to;
  // The run that saves is the one that was not stopped; else that is the job
  // itself.
  bool saver_is_straight = false;
  int first_step = 0;  // after the folder's newest
  bool same_lines = false;
  int length = 0;  // of the straight run, in steps; 0: not looked at
};

void ExpectGoesOn(const ResumeRow& row);

constexpr int kAnyFailure = -1;

// Flags that end a job, as one types them, with all texts of `says` on stderr:
// those are separated by "|".
struct RefusalRow {
  std::string name;
  std::string flags;
  std::string says;
  int exit_code = 2;
};

// Nothing of a library's own is said, and no process is left; `in_one_line`:
// stderr has one line unless the launcher speaks as well.
ProgramResult ExpectRefused(const Flags& job, const RefusalRow& row,
                            bool in_one_line = false);

// How many cells a table has.
int CellsIn(const std::vector<SameRow>& rows);
int CellsIn(const std::vector<ResumeRow>& rows);

// A row's name, as a test's parameter.
template <typename Row>
std::string RowName(const testing::TestParamInfo<Row>& info) {
  return info.param.name;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TRAIN_JOB_TABLE_H_
