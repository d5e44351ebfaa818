// The table of techniques and layouts: a row is what is trained, a column a
// layout, and each cell is to come to what the row says. Rows stand beside
// their models:
//
//   INSTANTIATE_TEST_SUITE_P(Chunked, TechniqueTest, testing::ValuesIn(Rows()),
//                            RowName);

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_ROWS_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_ROWS_H_

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

struct TechniqueRow {
  std::string name;  // letters and digits
  std::vector<LabLayout> columns;
  // Of a column, or of `reference`.
  std::function<LabJob(const LabLayout& layout)> job;
  // Cells are compared with the job in this layout; or, where there is such a
  // job, with that one in the cell's own.
  LabLayout reference = {"one"};
  std::optional<LabJob> without = std::nullopt;
  std::optional<LabTolerance> tolerance = std::nullopt;  // none: the same bits
};

// A job that is the same in every layout.
std::function<LabJob(const LabLayout& layout)> Always(const LabJob& job);

class TechniqueTest : public testing::TestWithParam<TechniqueRow> {};

std::string RowName(const testing::TestParamInfo<TechniqueRow>& info);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_ROWS_H_
