// The table of techniques and layouts: a row is what is trained, a column a
// layout, and each cell is to come to what the row says. Rows stand beside
// their models:
//
//   INSTANTIATE_TEST_SUITE_P(Chunked, TechniqueTest, testing::ValuesIn(Rows()),
//                            RowName);

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_ROWS_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_ROWS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/model/batch.h"
#include "core/model/layer.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

// Models of the table of techniques and layouts (technique_layouts_test.cc).

constexpr int64_t kModelWidth = 9;   // of what linear layers take and give
constexpr int64_t kModelTokens = 6;  // of a transformer's sample

// Weights that get gradients from both parts of backward: that of a layer's
// product is left for later, that of a penalty on the weight comes at once.
LayerSpecs PenalisedModel();

// fc1's weight comes back in fc2, fc3, ..., each tied to it or to the one
// before. 5 classes.
LayerSpecs TiedModel(int users, bool chained);

// Images [3, 32, 32] to tokens whose numbers lie far apart, with a skip
// connection, and a head that takes what has gaps. 8 classes.
LayerSpecs SmallVisionTransformer();

LayerSpecs SmallGpt(int64_t vocabulary, bool tied);
LayerSpecs SmallLlama(int64_t vocabulary, bool tied);
// Samples of theirs, drawn anew for each step.
Batch TokenBatch(int64_t vocabulary, int64_t size, int step);

struct TechniqueRow {
  std::string name;  // letters and digits
  std::vector<LabLayout> columns;
  // The job of a column, or of `reference`.
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
