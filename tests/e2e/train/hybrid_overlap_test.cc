// How a hybrid hides its all-reduces in the cool-down, as a trace tells: the
// last stage's buckets are on their way while the first one still computes.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

struct Span {
  double begin = 0;
  double end = 0;
};

Span SpanOf(const nlohmann::json& event) {
  const double begin = event["ts"];
  return {begin, begin + event["dur"].get<double>()};
}

// Of one replica.
struct Spans {
  std::vector<Span> all_reduces;  // of stage 1's buckets
  std::vector<Span> of_first;     // stage 0's
  Span last_backward;             // stage 1's
  Span cool_down;                 // stage 0's last backward
};

constexpr int kMicrobatches = 4;

Spans SpansOfRanks(const nlohmann::json& trace, const std::vector<int>& ranks) {
  const std::string last = "backward " + std::to_string(kMicrobatches - 1);
  Spans spans;
  for (const auto& event : trace["traceEvents"]) {
    const bool here =
        std::find(ranks.begin(), ranks.end(), event["pid"]) != ranks.end();
    if (!here || event["ph"] != "X") continue;
    const std::string name = event["name"];
    if (name == last + " of stage 0") spans.cool_down = SpanOf(event);
    if (name == last + " of stage 1") spans.last_backward = SpanOf(event);
    if (name.rfind("all-reduce of bucket", 0) != 0) continue;
    const std::string group = event["args"]["group"];
    if (group == "replicas of stage 1") {
      spans.all_reduces.push_back(SpanOf(event));
    } else {
      EXPECT_EQ(group, "replicas of stage 0");
      spans.of_first.push_back(SpanOf(event));
    }
  }
  return spans;
}

struct Layout {
  std::string name;
  Flags flags;
  std::vector<std::vector<int>> replicas;  // their ranks
};

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"2_ranks_of_2_devices",
       {"--nproc_per_node=2", "--devices_per_rank=2"},
       {{0}, {1}}},
      {"4_ranks", {"--nproc_per_node=4", "--pipe=2"}, {{0, 1}, {2, 3}}}};
  return *layouts;
}

// Of a step of two replicas of two stages: mlp_deep has 16 layers of 1 MiB,
// each a bucket.
nlohmann::json TraceOfStep(const Layout& layout) {
  const std::string path = NewFolder("trace") + "/trace.json";
  Flags flags = {
      "--model=mlp_deep",  "--synthetic_samples=1024",
      "--batch_size=128",  "--microbatches=" + std::to_string(kMicrobatches),
      "--strategy=hybrid", "--schedule=1f1b",
      "--bucket_cap_mb=1", "--max_steps=3",
      "--trace_step=3",    "--trace_file=" + path};
  flags.insert(flags.end(), layout.flags.begin(), layout.flags.end());
  const ProgramResult result = RunProgram(kTrain, SmallJob(flags));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(FileContents(path), nullptr,
                               /*allow_exceptions=*/false);
}

class HybridOverlapTest : public testing::TestWithParam<Layout> {};

TEST_P(HybridOverlapTest, TheLastStagesAllReducesHideInTheCoolDown) {
  // Now and then a replica has no processor until the other is through.
  constexpr int kTries = 5;
  bool hidden_on_all = false;
  for (int i = 0; i < kTries && !hidden_on_all; ++i) {
    const nlohmann::json trace = TraceOfStep(GetParam());
    ASSERT_FALSE(trace.is_discarded());
    hidden_on_all = true;
    for (const std::vector<int>& ranks : GetParam().replicas) {
      const Spans spans = SpansOfRanks(trace, ranks);
      ASSERT_GE(spans.all_reduces.size(), 4u);
      ASSERT_GE(spans.of_first.size(), 4u);
      // Stage 0 waits for stage 1's gradient, and stage 1 begins to send its
      // own while it computes it: a matter of order alone.
      EXPECT_GE(spans.cool_down.begin, spans.last_backward.end);
      EXPECT_GT(spans.all_reduces[0].begin, spans.last_backward.begin);
      EXPECT_LT(spans.all_reduces[0].begin, spans.cool_down.begin);
      EXPECT_GT(spans.of_first[0].begin, spans.cool_down.begin);
      int hidden = 0;
      for (const Span& one : spans.all_reduces) {
        if (one.end < spans.cool_down.end) ++hidden;
      }
      std::cout << GetParam().name << ", replica of rank " << ranks.front()
                << ": " << hidden << " of " << spans.all_reduces.size()
                << " all-reduces of stage 1 ended before stage 0's backward\n";
      hidden_on_all = hidden_on_all && hidden > 0;
    }
  }
  EXPECT_TRUE(hidden_on_all) << "in none of " << kTries << " steps";
}

INSTANTIATE_TEST_SUITE_P(Layouts, HybridOverlapTest,
                         testing::ValuesIn(Layouts()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
