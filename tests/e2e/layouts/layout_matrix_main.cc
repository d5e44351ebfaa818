// The whole matrix, or a part of it, as a table for docs/layout_matrix.md.
//
//   bazel run //tests/e2e/layouts:layout_matrix_main -- --models=mlp_dropout

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "tests/e2e/layouts/layout_cell.h"
#include "tests/e2e/layouts/layout_check.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

ABSL_FLAG(std::vector<std::string>, models, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, schedules, {},
          "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, places, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, microbatches, {},
          "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, checkpointing, {},
          "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, devices, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, parts, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, ends, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::vector<std::string>, dtypes, {}, "Of these alone; empty: all.");
ABSL_FLAG(std::string, shard, "1/1", "I/N: every Nth cell, from the Ith.");

namespace tandem {
namespace {

using Names = std::vector<std::string>;

// Which values of a setting are asked for.
struct Asked {
  const char* flag;
  size_t setting;  // of LayoutSettings()
  Names names;
};

std::vector<Asked> AllAsked() {
  return {{"models", 0, absl::GetFlag(FLAGS_models)},
          {"schedules", 1, absl::GetFlag(FLAGS_schedules)},
          {"places", 4, absl::GetFlag(FLAGS_places)},
          {"microbatches", 5, absl::GetFlag(FLAGS_microbatches)},
          {"checkpointing", 6, absl::GetFlag(FLAGS_checkpointing)},
          {"devices", 7, absl::GetFlag(FLAGS_devices)},
          {"parts", 8, absl::GetFlag(FLAGS_parts)},
          {"ends", 9, absl::GetFlag(FLAGS_ends)},
          {"dtypes", 10, absl::GetFlag(FLAGS_dtypes)}};
}

bool Fits(const Combination& cell, const std::vector<Asked>& asked) {
  for (const Asked& each : asked) {
    const auto value = static_cast<size_t>(cell[each.setting]);
    if (!IsAsked(each.names, LayoutSettings()[each.setting][value])) {
      return false;
    }
  }
  return true;
}

CellOutcome Run(const LayoutCell& cell) {
  const auto result = TryLayout(cell);
  if (!result.ok()) return {0, result.status().ToString()};
  Names complaints = result->differences;
  complaints.insert(complaints.end(), result->others.begin(),
                    result->others.end());
  return {0, absl::StrJoin(complaints, "; ")};
}

absl::StatusOr<int> Main() {
  const std::vector<Asked> asked = AllAsked();
  for (const Asked& each : asked) {
    TANDEM_RETURN_IF_ERROR(
        CheckAsked(each.flag, each.names, LayoutSettings()[each.setting]));
  }
  TANDEM_ASSIGN_OR_RETURN(const MatrixShard shard,
                          ParseShard(absl::GetFlag(FLAGS_shard)));
  std::vector<LayoutCell> cells;
  for (const Combination& each : SensibleLayouts()) {
    if (Fits(each, asked)) cells.push_back(LayoutOf(each));
  }
  MatrixCommand command;
  command.cells = cells.size();
  command.name = [&](size_t i) { return ToString(cells[i]); };
  command.row = [&](size_t i) {
    return std::make_pair(cells[i].model, cells[i].schedule);
  };
  command.run = [&](size_t i) { return Run(cells[i]); };
  command.shows_difference = false;
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
