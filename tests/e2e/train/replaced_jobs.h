// Jobs that lose ranks while the others go on (--replace_replicas). For tests.

#ifndef TANDEM_TESTS_E2E_TRAIN_REPLACED_JOBS_H_
#define TANDEM_TESTS_E2E_TRAIN_REPLACED_JOBS_H_

#include <csignal>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {

// A lost rank is started again by then, which is after the job's end.
inline constexpr char kNever[] = "--restart_delay=3600";

// Five samples a replica, each of so many ranks; replicas are compared after
// each step, to the bit.
inline Flags Replicas(int replicas, const Flags& more, int ranks_of_each = 1) {
  return Joined(
      SmallJob({"--nproc_per_node=" + std::to_string(replicas * ranks_of_each),
                "--batch_size=" + std::to_string(5 * replicas),
                "--replace_replicas=5", "--check_replicas_every=1"}),
      more);
}

// Steps that take a moment, of which there is no end.
inline Flags Endless(const Flags& more) {
  return Joined({"--epochs=1000000", "--restart_delay=0", "--log_every=1000"},
                more);
}

inline std::string Kill(const std::string& point, int rank, int step) {
  return "point=" + point + ",rank=" + std::to_string(rank) +
         ",step=" + std::to_string(step) + ",action=kill;";
}

inline ProgramOptions SlowFaultOf(const std::string& fault,
                                  const std::string& of_replacement = "") {
  constexpr char kSlow[] = "point=step,action=delay:0.02";
  ProgramOptions options;
  options.environment["TANDEM_FAULT"] = fault + kSlow;
  options.environment["TANDEM_REPLACEMENT_FAULT"] = of_replacement;
  return options;
}

// How many steps there are of so many replicas until `done` and one less from
// there on: of 96 samples in all, of which what is left at the end is dropped.
inline int StepsInAll(int replicas, int done) {
  const int left = 96 - 5 * replicas * done;
  return done + (left + replicas - 2) / (replicas - 1) / 5;
}

// Runs an endless job until it has said each of `lines`, and stops it with a
// checkpoint of replicas that are alike.
inline ProgramResult RunUntil(const Flags& flags, const ProgramOptions& options,
                              const std::vector<std::string>& lines) {
  Program job(kTrain, flags, options);
  for (const std::string& line : lines) {
    EXPECT_TRUE(job.WaitForOutput(line)) << line;
  }
  job.Signal(SIGTERM);
  const ProgramResult result = job.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.out << result.err;
  EXPECT_THAT(result.out + result.err,
              ::testing::HasSubstr("stopped after step"));
  return result;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TRAIN_REPLACED_JOBS_H_
