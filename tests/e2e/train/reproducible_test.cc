// What decides a job's bits: --reproducible has the same losses and weights,
// bit for bit, in every layout of data x pipe and under every schedule, also
// over sim_nccl; else kernels are measured, and kept in a file.

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::reproducible_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Rows = std::vector<SameRow>;
using Texts = std::vector<std::string>;

// So many ranks, of which `pipe` are a replica, of so many devices each.
std::string Layout(int ranks, int pipe, int devices) {
  std::string flags = "--pipe=" + std::to_string(pipe) +
                      " --devices_per_rank=" + std::to_string(devices);
  if (ranks > 1) flags += " --nproc_per_node=" + std::to_string(ranks);
  return flags;
}

Texts Layouts() {
  Texts layouts;
  for (int ranks : {1, 2, 4}) {
    for (int pipe : {1, 2}) {
      for (int devices : {1, 2}) {
        if (pipe <= ranks) layouts.push_back(Layout(ranks, pipe, devices));
      }
    }
  }
  return layouts;
}

Texts With(Texts layouts, const std::string& flags) {
  for (std::string& layout : layouts) layout += " " + flags;
  return layouts;
}

Flags Job(const std::string& model) {
  return Tiny(model,
              "--reproducible --batch_size=16 --microbatch_size=2 "
              "--synthetic_samples=64");
}

Rows ModelRows() {
  Rows rows;
  for (const std::string model :
       {"mlp_small", "mlp_dropout", "gpt_tiny_tied", "resnet18"}) {
    rows.push_back({model, Job(model), Layouts(), SameLines});
  }
  return rows;
}

class ReproducibleModelTest : public testing::TestWithParam<SameRow> {};

TEST_P(ReproducibleModelTest, EveryLayoutGivesOneDevicesBits) {
  const Flags& job = GetParam().job;
  const JobRun& one = RunOnce(job);
  EXPECT_EQ(one.events.front()["strategy"], "single");
  EXPECT_EQ(EventsOf(one.events, "step").size(), 4u);
  OtherBits(one, RunOnce(Joined(job, {"--max_steps=1"})));
  ExpectSame(GetParam());
  std::set<std::string> strategies;
  for (const std::string& layout : Layouts()) {
    strategies.insert(
        RunOnce(Joined(job, Words(layout))).events.front()["strategy"]);
  }
  EXPECT_EQ(strategies,
            (std::set<std::string>{"single", "ddp", "pipeline", "hybrid"}));
}

INSTANTIATE_TEST_SUITE_P(All, ReproducibleModelTest,
                         testing::ValuesIn(ModelRows()), RowName<SameRow>);

Rows ScheduleRows() {
  Rows rows;
  for (const std::string schedule :
       {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_v"}) {
    rows.push_back({schedule, Job("mlp_small"),
                    With({Layout(1, 1, 2), Layout(2, 1, 2), Layout(4, 2, 1),
                          Layout(2, 2, 1)},
                         "--schedule=" + schedule),
                    SameLines});
  }
  // The same as on GPUs: on streams of devices, over ordered queues without
  // tags.
  rows.push_back({"sim_nccl", Job("mlp_dropout"),
                  With({Layout(2, 1, 1), Layout(2, 2, 1), Layout(2, 1, 2),
                        Layout(2, 2, 2), Layout(4, 2, 1)},
                       "--device=sim --backend=sim_nccl --sim_delay_us=20"),
                  SameLines});
  const std::string shared = " --shard=optimizer";
  rows.push_back(
      {"muon",
       Joined(Job("gpt_tiny_tied"),
              Words("--optimizer=muon --clip_grad_norm=0.5 "
                    "--weight_decay=0.1 --no_weight_decay_on=bias")),
       {Layout(1, 1, 2), Layout(2, 1, 1) + shared, Layout(4, 2, 1) + shared},
       SameLines});
  return rows;
}

class ReproducibleTest : public testing::TestWithParam<SameRow> {};

TEST_P(ReproducibleTest, EveryLayoutGivesOneDevicesBits) {
  ExpectSame(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, ReproducibleTest,
                         testing::ValuesIn(ScheduleRows()), RowName<SameRow>);

std::vector<ResumeRow> ResumeRows() {
  ResumeRow row = {
      "OtherLayouts",
      Joined(Job("mlp_dropout"),
             Words("--clip_grad_norm=0.5 --optimizer=adamw")),
      {"--nproc_per_node=4"},
      "--save_every=2",
      {2},
      {Layout(2, 2, 1), Layout(4, 2, 1), Layout(1, 1, 2), Layout(2, 1, 2)}};
  row.saver_is_straight = true;
  row.same_lines = true;
  row.length = 4;
  return {row};
}

TEST(ReproducibleResumeTest, ACheckpointOfOneLayoutGoesOnInAnother) {
  for (const ResumeRow& row : ResumeRows()) ExpectGoesOn(row);
}

TEST(ReproducibleTableTest, NoCellIsMissing) {
  EXPECT_EQ(Layouts().size(), 10u);
  EXPECT_EQ(CellsIn(ModelRows()), 4 * 10);
  EXPECT_EQ(CellsIn(ScheduleRows()), 24 + 5 + 3);
  EXPECT_EQ(CellsIn(ResumeRows()), 4);
}

Flags KernelJob(const Flags& more) {
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
  const Flags job = KernelJob({"--kernel_cache=" + cache});
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
  const Flags job =
      KernelJob({"--nproc_per_node=2", "--kernel_cache=" + cache});
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
  const std::string by_rule = Fingerprint(
      RunJobForEvents(KernelJob({"--kernels=fixed"}), nullptr, home));
  EXPECT_THAT(FileContents(cache), IsEmpty());
  RunJobForEvents(KernelJob({"--reproducible", "--microbatch_size=2"}), nullptr,
                  home);
  EXPECT_THAT(FileContents(cache), IsEmpty());
  RunJobForEvents(KernelJob({}), nullptr, home);
  EXPECT_THAT(FileContents(cache), HasSubstr("product 128 x 128 x 384"));

  ExpectRefused(KernelJob({}),
                {"Measured",
                 "--reproducible --microbatch_size=2 "
                 "--kernels=measured",
                 "--kernels=measured lets another machine have other "
                 "bits"});

  // So have those that have no place to keep what they would measure.
  ProgramResult program;
  const Events events = RunJobForEvents(
      KernelJob({"--kernel_cache=/dev/null/kernels"}), &program);
  EXPECT_EQ(Fingerprint(events), by_rule);
  EXPECT_THAT(program.err,
              HasSubstr("kernels are chosen by rule, not by measurement: "
                        "cannot make the folder /dev/null"));
}

}  // namespace
}  // namespace tandem::reproducible_test
