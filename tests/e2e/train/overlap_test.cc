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
  std::vector<Span> backwards;
  std::vector<Span> all_reduces;  // of buckets
};

Spans SpansOfRank(const nlohmann::json& trace, int rank) {
  Spans spans;
  for (const auto& event : trace["traceEvents"]) {
    if (event["pid"] != rank || event["ph"] != "X") continue;
    const std::string name = event["name"];
    if (name == "backward") spans.backwards.push_back(SpanOf(event));
    if (name.rfind("all-reduce of bucket", 0) == 0) {
      spans.all_reduces.push_back(SpanOf(event));
    }
  }
  return spans;
}

class OverlapTest : public testing::TestWithParam<const char*> {};

TEST_P(OverlapTest, AllReducesBeginAndEndWhileBackwardRuns) {
  constexpr int kSteps = 8;
  const std::string folder = NewFolder("trace");
  // 16 layers of 1 MiB, each more than shm reduces on the thread that waits.
  const ProgramResult result = RunProgram(
      kTrain,
      SmallJob({"--model=mlp_deep", "--synthetic_samples=1024",
                "--batch_size=128", "--bucket_cap_mb=1",
                "--max_steps=" + std::to_string(kSteps),
                "--trace_file=" + folder + "/trace.json", "--nproc_per_node=2",
                std::string("--backend=") + GetParam()}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto trace =
      nlohmann::json::parse(FileContents(folder + "/trace.json"));
  for (const int rank : {0, 1}) {
    const Spans spans = SpansOfRank(trace, rank);
    EXPECT_EQ(spans.backwards.size(), kSteps) << "rank " << rank;
    int ended = 0;
    for (const Span& backward : spans.backwards) {
      int begun = 0;
      for (const Span& all_reduce : spans.all_reduces) {
        if (all_reduce.begin < backward.begin) continue;
        if (all_reduce.begin < backward.end) ++begun;
        if (all_reduce.end < backward.end) ++ended;
      }
      EXPECT_GE(begun, 2) << "rank " << rank;
    }
    // Not in every step: the other rank may not have had a processor.
    EXPECT_GE(ended, 1) << "rank " << rank;
    std::cout << GetParam() << ", rank " << rank << ": " << ended << " of "
              << spans.all_reduces.size()
              << " all-reduces ended before their backward did\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OverlapTest, testing::Values("shm", "gloo"));

}  // namespace
}  // namespace tandem
