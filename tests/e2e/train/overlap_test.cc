// How much of the all-reduce backward hides, as a trace tells.

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

Span SpanOf(const nlohmann::json& event) {
  const double begin = event["ts"];
  return {begin, begin + event["dur"].get<double>()};
}

struct Spans {
  Span backward;
  std::vector<Span> all_reduces;  // of buckets
};

Spans SpansOfRank(const nlohmann::json& trace, int rank) {
  Spans spans;
  for (const auto& event : trace["traceEvents"]) {
    if (event["pid"] != rank || event["ph"] != "X") continue;
    const std::string name = event["name"];
    if (name == "backward") spans.backward = SpanOf(event);
    if (name.rfind("all-reduce of bucket", 0) == 0) {
      spans.all_reduces.push_back(SpanOf(event));
    }
  }
  return spans;
}

// Of one step of a job of two ranks: mlp_deep has 16 layers of 1 MiB, each more
// than shm reduces on the thread that waits.
nlohmann::json TraceOfStep(const std::string& backend) {
  const std::string path = NewFolder("trace") + "/trace.json";
  const ProgramResult result = RunProgram(
      kTrain,
      SmallJob({"--model=mlp_deep", "--synthetic_samples=1024",
                "--batch_size=128", "--bucket_cap_mb=1", "--max_steps=4",
                "--trace_step=4", "--trace_file=" + path, "--nproc_per_node=2",
                "--backend=" + backend}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(FileContents(path), nullptr,
                               /*allow_exceptions=*/false);
}

// Buckets that were averaged before backward was over.
int CountHidden(const Spans& spans) {
  int hidden = 0;
  for (const Span& one : spans.all_reduces) {
    if (one.end < spans.backward.end) ++hidden;
  }
  return hidden;
}

class OverlapTest : public testing::TestWithParam<const char*> {};

TEST_P(OverlapTest, AllReducesBeginAndEndWhileBackwardRuns) {
  // Now and then one rank has no processor until the other has ended backward.
  constexpr int kTries = 5;
  bool ended_on_all = false;
  for (int i = 0; i < kTries && !ended_on_all; ++i) {
    const nlohmann::json trace = TraceOfStep(GetParam());
    ASSERT_FALSE(trace.is_discarded());
    ended_on_all = true;
    for (const int rank : {0, 1}) {
      const Spans spans = SpansOfRank(trace, rank);
      ASSERT_GE(spans.all_reduces.size(), 8) << "rank " << rank;
      // Begins are up to this rank alone.
      EXPECT_GT(spans.all_reduces[0].begin, spans.backward.begin);
      EXPECT_LT(spans.all_reduces[1].begin, spans.backward.end);
      const int hidden = CountHidden(spans);
      std::cout << GetParam() << ", rank " << rank << ": " << hidden << " of "
                << spans.all_reduces.size()
                << " all-reduces ended before backward did\n";
      ended_on_all = ended_on_all && hidden > 0;
    }
  }
  EXPECT_TRUE(ended_on_all) << "in none of " << kTries << " steps";
}

INSTANTIATE_TEST_SUITE_P(Backends, OverlapTest, testing::Values("shm", "gloo"));

}  // namespace
}  // namespace tandem
