// Jobs whose kernels are measured, and kept in a file.

#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::kernels_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Flags Job(const Flags& more) {
  return Joined(Words("--model=gpt_tiny --dataset=synthetic_tokens "
                      "--synthetic_shape=16 --synthetic_samples=16 "
                      "--batch_size=8 --intra_op_threads=1 --save_dir="),
                more);
}

// Every choice in `path` is `library` from here on.
void Prefer(const std::string& library, const std::string& path) {
  std::istringstream lines(FileContents(path));
  std::ofstream file(path);
  for (std::string line; std::getline(lines, line);) {
    file << line.substr(0, line.find('\t')) << '\t' << library << '\n';
  }
}

TEST(KernelsTest, WhatWasMeasuredIsKeptAndDecidesTheBits) {
  const std::string cache = NewFolder("kept") + "/deep/kernels";
  const Flags job = Job({"--kernel_cache=" + cache});
  const std::string first = Fingerprint(RunJobForEvents(job));
  const std::string measured = FileContents(cache);
  EXPECT_THAT(measured, HasSubstr("product 128 x 128 x 384"));
  EXPECT_EQ(Fingerprint(RunJobForEvents(job)), first);
  EXPECT_EQ(FileContents(cache), measured);

  Prefer("mkl", cache);
  const std::string mkl = Fingerprint(RunJobForEvents(job));
  Prefer("onednn", cache);
  EXPECT_NE(Fingerprint(RunJobForEvents(job)), mkl);
}

TEST(KernelsTest, RanksShareWhatOneHasMeasured) {
  const std::string cache = NewFolder("ranks") + "/kernels";
  const Flags job = Job({"--nproc_per_node=2", "--kernel_cache=" + cache});
  RunJobForEvents(job);
  Prefer("mkl", cache);
  const std::string before = FileContents(cache);
  const std::string mkl = Fingerprint(RunJobForEvents(job));
  EXPECT_EQ(Fingerprint(RunJobForEvents(job)), mkl);
  EXPECT_EQ(FileContents(cache), before);
}

TEST(KernelsTest, ReproducibleJobsHaveARule) {
  ProgramOptions home;
  home.environment["XDG_CACHE_HOME"] = NewFolder("rule");
  const std::string cache =
      home.environment["XDG_CACHE_HOME"] + "/tandem/kernels";
  const std::string by_rule =
      Fingerprint(RunJobForEvents(Job({"--kernels=fixed"}), nullptr, home));
  EXPECT_THAT(FileContents(cache), IsEmpty());
  RunJobForEvents(Job({"--reproducible", "--microbatch_size=2"}), nullptr,
                  home);
  EXPECT_THAT(FileContents(cache), IsEmpty());
  RunJobForEvents(Job({}), nullptr, home);
  EXPECT_THAT(FileContents(cache), HasSubstr("product 128 x 128 x 384"));

  ExpectRefused(Job({}), {"Measured",
                          "--reproducible --microbatch_size=2 "
                          "--kernels=measured",
                          "--kernels=measured lets another machine have other "
                          "bits"});

  // So have those that have no place to keep what they would measure.
  ProgramResult program;
  const Events events =
      RunJobForEvents(Job({"--kernel_cache=/dev/null/kernels"}), &program);
  EXPECT_EQ(Fingerprint(events), by_rule);
  EXPECT_THAT(program.err,
              HasSubstr("kernels are chosen by rule, not by measurement: "
                        "cannot make the folder /dev/null"));
}

}  // namespace
}  // namespace tandem::kernels_test
