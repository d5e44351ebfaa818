// The whole matrix, or a part of it, as a table for docs/pipeline_matrix.md.
//
//   bazel run //tests/parallel:pipeline_matrix_main -- --models=mlp_small

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "tests/parallel/pairwise.h"
#include "tests/parallel/pipeline_matrix.h"

ABSL_FLAG(std::vector<std::string>, models, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, places, {}, "Of these alone; empty: all.");

namespace tandem {
namespace {

struct Row {
  int cells = 0;
  int same_bits = 0;
  int failed = 0;
  double worst = 0;
};

bool IsAsked(const std::vector<std::string>& asked, const std::string& value) {
  return asked.empty() || absl::c_linear_search(asked, value);
}

int Main() {
  const auto all = AllCombinations(MatrixSizes(), [](const Combination& each) {
    const MatrixCell cell = CellOf(each);
    return WhyNot(cell).empty() &&
           IsAsked(absl::GetFlag(FLAGS_models), cell.model) &&
           IsAsked(absl::GetFlag(FLAGS_places), cell.place);
  });
  std::map<std::pair<std::string, std::string>, Row> rows;
  int failed = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const MatrixCell cell = CellOf(all[i]);
    Row& row = rows[{cell.model, cell.schedule}];
    const auto result = RunCell(cell);
    ++row.cells;
    const bool fits =
        result.ok() && result->moved && result->difference <= ToleranceOf(cell);
    if (!fits) {
      ++failed;
      ++row.failed;
      std::fprintf(
          stderr, "\n%s: %s\n", ToString(cell).c_str(),
          result.ok()
              ? absl::StrCat(result->difference, " in ", result->where).c_str()
              : result.status().ToString().c_str());
    } else {
      if (result->difference == 0) ++row.same_bits;
      row.worst = std::max(row.worst, result->difference);
    }
    if (i % 20 == 0) {
      std::fprintf(stderr, "\r%zu of %zu, %d failed", i, all.size(), failed);
    }
  }
  std::fprintf(stderr, "\n");
  std::printf(
      "| model | schedule | cells | same bits | worst difference | "
      "failed |\n|---|---|---|---|---|---|\n");
  for (const auto& [name, row] : rows) {
    std::printf("| %s | %s | %d | %d | %.1e | %d |\n", name.first.c_str(),
                name.second.c_str(), row.cells, row.same_bits, row.worst,
                row.failed);
  }
  std::printf("\n%zu cells, %d failed\n", all.size(), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tandem::Main();
}
