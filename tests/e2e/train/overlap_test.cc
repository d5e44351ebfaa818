// How much of the all-reduce is hidden, as a trace tells: by a replica's
// backward, and of a hybrid's last stage in the cool-down, while the first one
// still computes.

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

struct Span {
  double begin = 0;
  double end = 0;
};

Span SpanIn(const nlohmann::json& event) {
  const double begin = event["ts"];
  return {begin, begin + event["dur"].get<double>()};
}

// The spans of these ranks in a step's trace.
std::vector<nlohmann::json> EventsOfRanks(const nlohmann::json& trace,
                                          const std::vector<int>& ranks) {
  std::vector<nlohmann::json> events;
  for (const auto& event : trace["traceEvents"]) {
    const bool here =
        std::find(ranks.begin(), ranks.end(), event["pid"]) != ranks.end();
    if (here && event["ph"] == "X") events.push_back(event);
  }
  return events;
}

// mlp_deep has 16 layers of 1 MiB, each a bucket, and each more than shm
// reduces on the thread that waits.
nlohmann::json TraceOfStep(int step, const std::string& more) {
  const std::string path = NewFolder("trace") + "/trace.json";
  const std::string number = std::to_string(step);
  const ProgramResult result = RunProgram(
      kTrain, Small("--model=mlp_deep --synthetic_samples=1024 "
                    "--batch_size=128 --bucket_cap_mb=1 --max_steps=" +
                    number + " --trace_steps=" + number +
                    " --trace_file=" + path + " " + more));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(FileContents(path), nullptr,
                               /*allow_exceptions=*/false);
}

// How many all-reduces were over before `span` was.
int CountHidden(const std::vector<Span>& all_reduces, const Span& span) {
  return static_cast<int>(
      std::count_if(all_reduces.begin(), all_reduces.end(),
                    [&](const Span& one) { return one.end < span.end; }));
}

// Now and then one rank has no processor until the other is through.
constexpr int kTries = 5;

struct ReplicaSpans {
  Span backward;
  std::vector<Span> all_reduces;  // of buckets
};

ReplicaSpans SpansOfRank(const nlohmann::json& trace, int rank) {
  ReplicaSpans spans;
  for (const auto& event : EventsOfRanks(trace, {rank})) {
    const std::string name = event["name"];
    if (name == "backward") spans.backward = SpanIn(event);
    if (name.rfind("all-reduce of bucket", 0) == 0) {
      spans.all_reduces.push_back(SpanIn(event));
    }
  }
  return spans;
}

class OverlapTest : public testing::TestWithParam<const char*> {};

TEST_P(OverlapTest, AllReducesBeginAndEndWhileBackwardRuns) {
  bool ended_on_all = false;
  for (int i = 0; i < kTries && !ended_on_all; ++i) {
    const nlohmann::json trace = TraceOfStep(
        4, std::string("--nproc_per_node=2 --backend=") + GetParam());
    ASSERT_FALSE(trace.is_discarded());
    ended_on_all = true;
    for (const int rank : {0, 1}) {
      const ReplicaSpans spans = SpansOfRank(trace, rank);
      ASSERT_GE(spans.all_reduces.size(), 8) << "rank " << rank;
      // Begins are up to this rank alone.
      EXPECT_GT(spans.all_reduces[0].begin, spans.backward.begin);
      EXPECT_LT(spans.all_reduces[1].begin, spans.backward.end);
      const int hidden = CountHidden(spans.all_reduces, spans.backward);
      std::cout << GetParam() << ", rank " << rank << ": " << hidden << " of "
                << spans.all_reduces.size()
                << " all-reduces ended before backward did\n";
      ended_on_all = ended_on_all && hidden > 0;
    }
  }
  EXPECT_TRUE(ended_on_all) << "in none of " << kTries << " steps";
}

INSTANTIATE_TEST_SUITE_P(Backends, OverlapTest, testing::Values("shm", "gloo"));

// Spans of one replica of two stages.
struct StageSpans {
  std::vector<Span> all_reduces;  // of stage 1's buckets
  std::vector<Span> of_first;     // stage 0's
  Span last_backward;             // stage 1's
  Span cool_down;                 // stage 0's last backward
};

constexpr int kMicrobatches = 4;

StageSpans SpansOfStages(const nlohmann::json& trace,
                         const std::vector<int>& ranks) {
  const std::string last = "backward " + std::to_string(kMicrobatches - 1);
  StageSpans spans;
  for (const auto& event : EventsOfRanks(trace, ranks)) {
    const std::string name = event["name"];
    if (name == last + " of stage 0") spans.cool_down = SpanIn(event);
    if (name == last + " of stage 1") spans.last_backward = SpanIn(event);
    if (name.rfind("all-reduce of bucket", 0) != 0) continue;
    const std::string group = event["args"]["group"];
    if (group == "replicas of stage 1") {
      spans.all_reduces.push_back(SpanIn(event));
    } else {
      EXPECT_EQ(group, "replicas of stage 0");
      spans.of_first.push_back(SpanIn(event));
    }
  }
  return spans;
}

struct Layout {
  std::string name;
  std::string flags;
  std::vector<std::vector<int>> replicas;  // their ranks
};

class HybridOverlapTest : public testing::TestWithParam<Layout> {};

TEST_P(HybridOverlapTest, TheLastStagesAllReducesHideInTheCoolDown) {
  bool hidden_on_all = false;
  for (int i = 0; i < kTries && !hidden_on_all; ++i) {
    const nlohmann::json trace = TraceOfStep(
        3, "--strategy=hybrid --schedule=1f1b --microbatches=" +
               std::to_string(kMicrobatches) + " " + GetParam().flags);
    ASSERT_FALSE(trace.is_discarded());
    hidden_on_all = true;
    for (const std::vector<int>& ranks : GetParam().replicas) {
      const StageSpans spans = SpansOfStages(trace, ranks);
      ASSERT_GE(spans.all_reduces.size(), 4u);
      ASSERT_GE(spans.of_first.size(), 4u);
      // Stage 0 waits for stage 1's gradient, and stage 1 begins to send its
      // own while it computes it: a matter of order alone.
      EXPECT_GE(spans.cool_down.begin, spans.last_backward.end);
      EXPECT_GT(spans.all_reduces[0].begin, spans.last_backward.begin);
      EXPECT_LT(spans.all_reduces[0].begin, spans.cool_down.begin);
      EXPECT_GT(spans.of_first[0].begin, spans.cool_down.begin);
      const int hidden = CountHidden(spans.all_reduces, spans.cool_down);
      std::cout << GetParam().name << ", replica of rank " << ranks.front()
                << ": " << hidden << " of " << spans.all_reduces.size()
                << " all-reduces of stage 1 ended before stage 0's backward\n";
      hidden_on_all = hidden_on_all && hidden > 0;
    }
  }
  EXPECT_TRUE(hidden_on_all) << "in none of " << kTries << " steps";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, HybridOverlapTest,
    testing::Values(
        Layout{"2_ranks_of_2_devices",
               "--nproc_per_node=2 --devices_per_rank=2",
               {{0}, {1}}},
        Layout{"4_ranks", "--nproc_per_node=4 --pipe=2", {{0, 1}, {2, 3}}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
