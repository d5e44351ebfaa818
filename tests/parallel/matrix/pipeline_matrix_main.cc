// The whole matrix, or a part of it, as a table for docs/pipeline_matrix.md.
//
//   bazel run //tests/parallel/matrix:pipeline_matrix_main --
//   --models=mlp_small

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"
#include "tests/parallel/matrix/pipeline_matrix.h"

ABSL_FLAG(std::vector<std::string>, models, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, places, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::string, shard, "1/1", "I/N: every Nth cell, from the Ith.");

namespace tandem {
namespace {

CellOutcome Run(const MatrixCell& cell) {
  const auto result = RunCell(cell);
  if (!result.ok()) return {0, result.status().ToString()};
  CellOutcome outcome = {result->difference, ""};
  if (!result->moved) outcome.complaint = "no weight moved";
  if (result->difference > ToleranceOf(cell)) {
    outcome.complaint = absl::StrCat(result->difference, " in ", result->where);
  }
  return outcome;
}

absl::StatusOr<int> Main() {
  const auto models = absl::GetFlag(FLAGS_models);
  const auto places = absl::GetFlag(FLAGS_places);
  TANDEM_RETURN_IF_ERROR(CheckAsked("models", models, MatrixSettings()[0]));
  TANDEM_RETURN_IF_ERROR(CheckAsked("places", places, MatrixSettings()[4]));
  TANDEM_ASSIGN_OR_RETURN(const MatrixShard shard,
                          ParseShard(absl::GetFlag(FLAGS_shard)));
  const auto all =
      AllCombinations(SizesOf(MatrixSettings()), [&](const Combination& each) {
        const MatrixCell cell = CellOf(each);
        return WhyNot(cell).empty() && IsAsked(models, cell.model) &&
               IsAsked(places, cell.place);
      });
  MatrixCommand command;
  command.cells = all.size();
  command.name = [&](size_t i) { return ToString(CellOf(all[i])); };
  command.row = [&](size_t i) {
    const MatrixCell cell = CellOf(all[i]);
    return std::make_pair(cell.model, cell.schedule);
  };
  command.run = [&](size_t i) { return Run(CellOf(all[i])); };
  return RunMatrix(command, shard);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<int> failed = tandem::Main();
  if (failed.ok()) return *failed == 0 ? 0 : 1;
  std::fprintf(stderr, "%s\n", std::string(failed.status().message()).c_str());
  return 2;
}
