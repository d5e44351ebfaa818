#include "tests/parallel/strategy/technique_rows.h"

#include <algorithm>

#include "absl/status/statusor.h"

namespace tandem {
namespace {

// Training that does not move is the same everywhere.
void ExpectMoves(const absl::StatusOr<LabOutcome>& outcome) {
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const std::vector<Score>& scores = outcome->scores;
  const auto differs = [&](const Score& score) {
    return score.loss_sum != scores.front().loss_sum;
  };
  EXPECT_TRUE(std::any_of(scores.begin(), scores.end(), differs));
}

}  // namespace

std::function<LabJob(const LabLayout& layout)> Always(const LabJob& job) {
  return [job](const LabLayout&) { return job; };
}

std::string RowName(const testing::TestParamInfo<TechniqueRow>& info) {
  return info.param.name;
}

TEST_P(TechniqueTest, ComesToTheSameInEveryLayout) {
  const TechniqueRow& row = GetParam();
  absl::StatusOr<LabOutcome> expected;
  if (!row.without) {
    expected = TrainInLab(row.reference, row.job(row.reference));
    ExpectMoves(expected);
  }
  for (const LabLayout& column : row.columns) {
    SCOPED_TRACE(column.name);
    if (row.without) expected = TrainInLab(column, *row.without);
    const auto found = TrainInLab(column, row.job(column));
    if (row.tolerance) {
      ExpectClose(found, expected, *row.tolerance);
    } else {
      ExpectSameBits(found, expected);
    }
  }
  RecordProperty("cells", static_cast<int>(row.columns.size()));
}

}  // namespace tandem
