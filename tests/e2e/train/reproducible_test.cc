// --reproducible: the same losses and weights, bit for bit, in every layout of
// data x pipe and under every schedule; also over sim_nccl.

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem::reproducible_test {
namespace {

using Texts = std::vector<std::string>;
using Rows = std::vector<SameRow>;

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
  // As on GPUs: on streams of devices, over ordered queues without tags.
  rows.push_back({"sim_nccl", Job("mlp_dropout"),
                  With({Layout(2, 1, 1), Layout(2, 2, 1), Layout(2, 1, 2),
                        Layout(2, 2, 2), Layout(4, 2, 1)},
                       "--device=sim --backend=sim_nccl --sim_delay_us=20"),
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
  EXPECT_EQ(CellsIn(ScheduleRows()), 24 + 5);
  EXPECT_EQ(CellsIn(ResumeRows()), 4);
}

}  // namespace
}  // namespace tandem::reproducible_test
