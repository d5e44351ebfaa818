#include "tools/bench/data_parallel/run.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "tools/bench/measure/usage.h"

namespace tandem {
namespace {

constexpr double kFarthest = 1e-4;

absl::Status CompareLosses(const std::vector<BenchBatch>& batches,
                           const std::vector<NamedWay>& ways,
                           std::vector<WayResult>& results) {
  for (size_t step = 0; step < batches.size(); ++step) {
    double first = 0;
    for (size_t i = 0; i < ways.size(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(const double loss,
                              ways[i].way->Step(batches[step]));
      if (i == 0) first = loss;
      const double apart = std::abs(loss - first);
      results[i].apart = std::max(results[i].apart, apart);
      if (apart <= kFarthest) continue;
      return absl::InternalError(absl::StrCat(
          "step ", step + 1, ": the loss of ", ways[i].name, " is ", loss,
          ", that of ", ways[0].name, " ", first, ": not the same training"));
    }
  }
  return absl::OkStatus();
}

absl::Status Measure(const std::vector<BenchBatch>& batches, int steps,
                     TrainingWay& way, WayResult& result) {
  const Usage before = Usage::Now();
  for (int step = 0; step < steps; ++step) {
    const BenchBatch& batch =
        batches[static_cast<size_t>(step) % batches.size()];
    TANDEM_RETURN_IF_ERROR(way.Step(batch).status());
  }
  const Usage used = Usage::Now() - before;
  result.wall_ms.push_back(used.wall_ms / steps);
  result.cpu_ms.push_back(used.cpu_ms / steps);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<WayResult>> CompareWays(
    const BenchProblem& problem, const std::vector<NamedWay>& ways,
    const RunLength& length) {
  std::vector<WayResult> results;
  for (const NamedWay& each : ways) results.push_back({each.name, 0, {}, {}});
  std::vector<BenchBatch> batches;
  for (int step = 0; step < length.checked_steps; ++step) {
    batches.push_back(BenchBatchOf(problem, step));
  }
  TANDEM_RETURN_IF_ERROR(CompareLosses(batches, ways, results));
  for (int round = 0; round < length.rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      TANDEM_RETURN_IF_ERROR(
          Annotate(Measure(batches, length.steps, *ways[i].way, results[i]),
                   ways[i].name));
    }
  }
  return results;
}

}  // namespace tandem
