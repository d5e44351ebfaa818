// Layouts in words and drawn, from settings that anybody may have written.

#include "tools/report/job_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/tools/report/well_formed.h"
#include "tools/report/mesh_drawing.h"

namespace tandem::job_layout_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

EventFields Settings(const std::string& strategy, const std::string& mesh,
                     const EventFields& more = {}) {
  EventFields fields = {{"strategy", strategy},
                        {"mesh", mesh},
                        {"device", std::string("cpu")},
                        {"batch_size", int64_t{64}},
                        {"batch_per_replica", int64_t{32}},
                        {"schedule", std::string("1f1b")}};
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

std::string InWords(const EventFields& settings) {
  const auto layout = ReadLayout(settings);
  return layout ? DescribeLayout(*layout) : "none";
}

const EventFields kTwoDevices = {{"devices_per_rank", int64_t{2}}};

TEST(LayoutTest, InWords) {
  EXPECT_EQ(InWords(Settings("single", "data 1 x pipe 1")), "one device, cpu");
  EXPECT_EQ(InWords(Settings("ddp", "data 4 x pipe 1")),
            "4 replicas, one a rank (ddp), cpu");
  EXPECT_EQ(InWords(Settings("ddp", "data 2 x pipe 1", kTwoDevices)),
            "2 replicas, each a model over 2 devices, in turns, cpu");
  EXPECT_EQ(InWords(Settings("model_parallel", "data 1 x pipe 1", kTwoDevices)),
            "a model over 2 devices, in turns, cpu");
  EXPECT_EQ(InWords(Settings("data_parallel", "data 1 x pipe 1", kTwoDevices)),
            "2 replicas on the devices of 1 rank, cpu");
  EXPECT_EQ(InWords(Settings("pipeline", "data 1 x pipe 2")),
            "a pipeline of 2 stages on 2 ranks (1f1b, 4 microbatches), cpu");
  EXPECT_EQ(InWords(Settings("pipeline", "data 1 x pipe 1", kTwoDevices)),
            "a pipeline of 2 stages on 2 devices (1f1b, 4 microbatches), cpu");
  EXPECT_EQ(InWords(Settings("hybrid", "data 2 x pipe 2",
                             {{"devices_per_rank", int64_t{2}},
                              {"microbatch_size", int64_t{32}}})),
            "2 replicas, each a pipeline of 4 stages on 2 ranks of 2 devices "
            "(1f1b, 1 microbatch), cpu");
  EXPECT_EQ(InWords(Settings("parameter_server", "data 2 x pipe 1",
                             {{"servers", int64_t{1}}})),
            "2 workers and 1 parameter server, cpu");
  EXPECT_EQ(InWords(Settings("single", "data 1 x pipe 1 x tensor 2")),
            "one model, each layer shared by 2 ranks, cpu");
  EXPECT_EQ(InWords(Settings("ddp", "data 3 x shard 2 x pipe 1 x tensor 4")),
            "6 replicas (ddp), each layer shared by 4 ranks, cpu");
  EXPECT_EQ(InWords(Settings("pipeline", "data 1 x pipe 2 x tensor 2")),
            "a pipeline of 2 stages on 2 ranks (1f1b, 4 microbatches), each "
            "layer shared by 2 ranks, cpu");
  // The path of a schedule is not opened.
  EXPECT_EQ(InWords({{"strategy", std::string("pipeline")},
                     {"mesh", std::string("data 1 x pipe 2")},
                     {"schedule", std::string("/etc/passwd")}}),
            "a pipeline on 2 ranks (/etc/passwd)");
}

TEST(LayoutTest, WordsSayWhatReplicasShare) {
  const auto words = [](const std::string& mesh, const std::string& shard,
                        const std::string& state) {
    return InWords(
        Settings("ddp", mesh, {{"shard", shard}, {"optimizer_state", state}}));
  };
  const std::string shared = "shared by 4 replicas";
  EXPECT_EQ(words("data 1 x shard 4 x pipe 1", "parameters", shared),
            "4 replicas, one a rank (ddp), parameters shared, cpu");
  EXPECT_EQ(words("data 1 x shard 4 x pipe 1", "gradients", shared),
            "4 replicas, one a rank (ddp), gradients shared, cpu");
  EXPECT_EQ(words("data 4 x pipe 1", "optimizer", shared),
            "4 replicas, one a rank (ddp), optimizer state shared, cpu");
  EXPECT_EQ(words("data 4 x pipe 1", "auto", shared),
            "4 replicas, one a rank (ddp), optimizer state shared, cpu");
  EXPECT_EQ(words("data 4 x pipe 1", "auto", "whole on each replica"),
            "4 replicas, one a rank (ddp), cpu");
  // --data_shard=2.
  EXPECT_EQ(words("data 2 x shard 2 x pipe 1", "parameters", shared),
            "4 replicas, one a rank (ddp), parameters shared in groups of 2, "
            "cpu");
  EXPECT_EQ(words("data 2 x shard 2 x pipe 1 x tensor 2", "parameters", shared),
            "4 replicas (ddp), parameters shared in groups of 2, each layer "
            "shared by 2 ranks, cpu");
  // There is nobody to share with.
  EXPECT_EQ(words("data 1 x pipe 1", "parameters", ""), "one device, cpu");
}

TEST(LayoutTest, NothingIsMadeOfNonsense) {
  for (const char* mesh :
       {"", "data", "data x", "data 0 x pipe 1", "data -1 x pipe 1",
        "data 99999999999999999999 x pipe 1", "data 1048576 x pipe 1048576",
        "data 2000000 x pipe 1", "<script>"}) {
    EXPECT_EQ(InWords(Settings("ddp", mesh)), "none") << mesh;
  }
  EXPECT_EQ(InWords({}), "none");
  EXPECT_EQ(InWords(Settings("ddp", "data 2 x pipe 1",
                             {{"devices_per_rank", int64_t{1} << 50}})),
            "none");
}

std::string Drawing(const EventFields& settings) {
  const auto layout = ReadLayout(settings);
  if (!layout) return "none";
  const std::string drawing = absl::StrCat("<div>", MeshDrawing(*layout),
                                           ScheduleDrawing(*layout), "</div>");
  EXPECT_EQ(MarkupError(drawing), "") << drawing;
  return drawing;
}

TEST(LayoutTest, RanksHaveTheirStages) {
  const std::string drawing = Drawing(Settings("hybrid", "data 2 x pipe 2"));
  EXPECT_THAT(drawing,
              AllOf(HasSubstr("<th>data 1</th>"), HasSubstr("<th>pipe 1</th>"),
                    HasSubstr("<b>rank 3</b><br/>stage 1<"),
                    HasSubstr("1f1b: step 15, of which 3 bubble")));
  // ZB-V: the first device has the last stage, too.
  EventFields zb_v = Settings("pipeline", "data 1 x pipe 2");
  zb_v.back().second = std::string("zb_v");
  EXPECT_THAT(Drawing(zb_v), AllOf(HasSubstr("<b>rank 0</b><br/>stages 0, 3<"),
                                   HasSubstr("<b>rank 1</b><br/>stages 1, 2<"),
                                   HasSubstr("backward, weights")));
}

TEST(LayoutTest, ReplicasStandInARow) {
  EXPECT_EQ(Drawing(Settings("single", "data 1 x pipe 1")), "<div></div>");
  EXPECT_THAT(
      Drawing(Settings("ddp", "data 3 x pipe 1")),
      AllOf(HasSubstr("<b>rank 2</b><br/>replica 2<"), Not(HasSubstr("<svg"))));
  EXPECT_THAT(Drawing(Settings("parameter_server", "data 1 x pipe 1",
                               {{"servers", int64_t{1}}})),
              AllOf(HasSubstr("<b>rank 0</b><br/>server<"),
                    HasSubstr("<b>rank 1</b><br/>worker<")));
}

TEST(LayoutTest, RanksThatShareLayersAreNeighbours) {
  EXPECT_THAT(Drawing(Settings("single", "data 1 x pipe 1 x tensor 2")),
              HasSubstr("<b>rank 1</b><br/>tensor 1<"));
  EXPECT_THAT(Drawing(Settings("ddp", "data 2 x pipe 1 x tensor 2")),
              HasSubstr("<b>rank 2</b><br/>replica 1, tensor 0<"));
  EXPECT_THAT(Drawing(Settings("hybrid", "data 2 x pipe 2 x tensor 2")),
              AllOf(HasSubstr("<th>pipe 1, tensor 0</th>"),
                    HasSubstr("<b>rank 6</b><br/>stage 1<")));
}

TEST(LayoutTest, RanksThatShareInGroupsSayWhichTheyAreIn) {
  const auto drawing = [](const std::string& strategy, const std::string& mesh,
                          const std::string& shard) {
    return Drawing(Settings(strategy, mesh, {{"shard", shard}}));
  };
  const std::string groups =
      drawing("ddp", "data 2 x shard 2 x pipe 1 x tensor 2", "parameters");
  EXPECT_THAT(
      groups,
      AllOf(
          HasSubstr("<b>rank 3</b><br/>replica 1, shard group 0, tensor 1<"),
          HasSubstr("<b>rank 4</b><br/>replica 2, shard group 1, tensor 0<")));
  EXPECT_THAT(drawing("hybrid", "data 2 x shard 2 x pipe 2", "gradients"),
              AllOf(HasSubstr("<b>rank 3</b><br/>stage 1, shard group 0<"),
                    HasSubstr("<b>rank 4</b><br/>stage 0, shard group 1<")));
  EXPECT_THAT(Drawing(Settings("hybrid", "data 2 x shard 2 x pipe 2",
                               {{"shard", std::string("gradients")},
                                {"microbatches", int64_t{1} << 40}})),
              HasSubstr("<b>rank 4</b><br/>shard group 1<"));
  // One group of all, and replicas that share nothing.
  EXPECT_THAT(drawing("ddp", "data 1 x shard 4 x pipe 1", "parameters"),
              AllOf(HasSubstr("<br/>replica 3<"), Not(HasSubstr("group"))));
  EXPECT_THAT(drawing("ddp", "data 4 x pipe 1", "off"),
              Not(HasSubstr("group")));
}

std::string Text(const std::string& strategy, const std::string& mesh,
                 const EventFields& more = {}) {
  const auto layout = ReadLayout(Settings(strategy, mesh, more));
  return layout ? MeshText(*layout) : "none";
}

TEST(LayoutTest, IsDrawnAsText) {
  EXPECT_EQ(Text("single", "data 1 x pipe 1"), "");
  EXPECT_EQ(Text("ddp", "data 5 x pipe 1"),
            "rank 0: replica 0  rank 1: replica 1  rank 2: replica 2  "
            "rank 3: replica 3\n"
            "rank 4: replica 4");
  EXPECT_EQ(Text("single", "data 1 x pipe 1 x tensor 2"),
            "rank 0: tensor 0  rank 1: tensor 1");
  EXPECT_EQ(Text("pipeline", "data 1 x pipe 1", kTwoDevices),
            "pipe 0\n"
            "rank 0: stages 0, 1");
  EXPECT_EQ(Text("hybrid", "data 2 x pipe 2"),
            "        pipe 0           pipe 1\n"
            "data 0  rank 0: stage 0  rank 1: stage 1\n"
            "data 1  rank 2: stage 0  rank 3: stage 1");
  EXPECT_EQ(Text("pipeline", "data 1 x pipe 2 x tensor 2"),
            "pipe 0, tensor 0  pipe 0, tensor 1  pipe 1, tensor 0  "
            "pipe 1, tensor 1\n"
            "rank 0: stage 0   rank 1: stage 0   rank 2: stage 1   "
            "rank 3: stage 1");
  EXPECT_EQ(Text("ddp", "data 2 x shard 2 x pipe 1",
                 {{"shard", std::string("parameters")}}),
            "rank 0: replica 0, shard group 0  rank 1: replica 1, shard group "
            "0  rank 2: replica 2, shard group 1  rank 3: replica 3, shard "
            "group 1");
  EXPECT_THAT(
      Text("hybrid", "data 512 x pipe 64", {{"microbatches", int64_t{8}}}),
      testing::EndsWith(
          "\n... and 504 more replicas\n... and 48 more pipe ranks"));
}

TEST(LayoutTest, OfManyRanksSomeAreDrawn) {
  const std::string row = Drawing(Settings("ddp", "data 1000 x pipe 1"));
  EXPECT_THAT(row, HasSubstr("984 more ranks"));
  EXPECT_LT(row.size(), 4000u);
  const std::string grid = Drawing(
      Settings("hybrid", "data 512 x pipe 64", {{"microbatches", int64_t{8}}}));
  EXPECT_THAT(grid, AllOf(HasSubstr("504 more replicas"),
                          HasSubstr("48 more pipe ranks")));
}

TEST(LayoutTest, ScheduleIsDrawnOnlyWhereOneSeesIt) {
  EXPECT_THAT(Drawing(Settings("pipeline", "data 1 x pipe 2",
                               {{"microbatches", int64_t{16}}})),
              HasSubstr("<svg"));
  const std::string large = Drawing(Settings("pipeline", "data 1 x pipe 64",
                                             {{"microbatches", int64_t{60}}}));
  EXPECT_THAT(large,
              AllOf(HasSubstr("bubble of 105 %"), Not(HasSubstr("<svg"))));
  // Not even a prediction is made of what would take gigabytes.
  const std::string huge = Drawing(Settings(
      "pipeline", "data 1 x pipe 1024",
      {{"batch_size", int64_t{1} << 40}, {"microbatches", int64_t{1000000}}}));
  EXPECT_THAT(huge, Not(HasSubstr("bubble")));
  EXPECT_THAT(Drawing(Settings(
                  "pipeline", "data 1 x pipe 2",
                  {{"microbatches", std::numeric_limits<int64_t>::max()}})),
              Not(HasSubstr("bubble")));
}

}  // namespace
}  // namespace tandem::job_layout_test
