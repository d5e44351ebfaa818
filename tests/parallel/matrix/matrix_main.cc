// The whole matrix, or a part of it, as a table. README.md, beside this file,
// says what is compared.
//
//   bazel run //tests/parallel/matrix:matrix_main -- --models=mlp_dropout

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "tests/parallel/matrix/cell_check.h"
#include "tests/parallel/matrix/matrix_cell.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

using Names = std::vector<std::string>;

ABSL_FLAG(Names, reproducible, {}, "\"no\", \"yes\"; empty: both.");
ABSL_FLAG(Names, models, {}, "These alone; empty: all.");
ABSL_FLAG(Names, schedules, {}, "These alone; empty: all.");
ABSL_FLAG(Names, places, {}, "These alone; empty: all.");
ABSL_FLAG(Names, microbatches, {}, "These alone; empty: all.");
ABSL_FLAG(Names, checkpointing, {}, "These alone; empty: all.");
ABSL_FLAG(Names, devices, {}, "These alone; empty: all.");
ABSL_FLAG(Names, parts, {}, "These alone; empty: all.");
ABSL_FLAG(Names, ends, {}, "These alone; empty: all.");
ABSL_FLAG(Names, dtypes, {}, "These alone; empty: all.");
ABSL_FLAG(std::string, shard, "1/1", "I/N: every Nth cell, from the Ith.");

namespace tandem {
namespace {

// Which values of a setting are asked for.
struct Asked {
  const char* setting;  // and the flag
  Names names;
};

std::vector<Asked> AllAsked() {
  return {{"reproducible", absl::GetFlag(FLAGS_reproducible)},
          {"models", absl::GetFlag(FLAGS_models)},
          {"schedules", absl::GetFlag(FLAGS_schedules)},
          {"places", absl::GetFlag(FLAGS_places)},
          {"microbatches", absl::GetFlag(FLAGS_microbatches)},
          {"checkpointing", absl::GetFlag(FLAGS_checkpointing)},
          {"devices", absl::GetFlag(FLAGS_devices)},
          {"parts", absl::GetFlag(FLAGS_parts)},
          {"ends", absl::GetFlag(FLAGS_ends)},
          {"dtypes", absl::GetFlag(FLAGS_dtypes)}};
}

bool Fits(const MatrixCell& cell, const std::vector<Asked>& asked) {
  for (const Asked& each : asked) {
    if (!IsAsked(each.names, SettingOf(cell, each.setting))) return false;
  }
  return true;
}

CellOutcome Run(const MatrixCell& cell) {
  const auto result = TryCell(cell);
  if (!result.ok()) return {0, result.status().ToString()};
  Names complaints = result->differences.found;
  complaints.insert(complaints.end(), result->others.begin(),
                    result->others.end());
  return {result->differences.greatest, absl::StrJoin(complaints, "; ")};
}

absl::StatusOr<int> Main() {
  const std::vector<Asked> asked = AllAsked();
  for (const Asked& each : asked) {
    TANDEM_RETURN_IF_ERROR(
        CheckAsked(each.setting, each.names, KnownValues(each.setting)));
  }
  TANDEM_ASSIGN_OR_RETURN(const MatrixShard shard,
                          ParseShard(absl::GetFlag(FLAGS_shard)));
  std::vector<MatrixCell> cells;
  for (const bool reproducible : {false, true}) {
    for (const Combination& each : SensibleCells(reproducible)) {
      const MatrixCell cell = MakeCell(reproducible, each);
      if (Fits(cell, asked)) cells.push_back(cell);
    }
  }
  MatrixCommand command;
  command.cells = cells.size();
  command.name = [&](size_t i) { return ToString(cells[i]); };
  command.row = [&](size_t i) {
    const MatrixCell& cell = cells[i];
    return std::make_pair(
        absl::StrCat(cell.model, cell.reproducible ? ", reproducible" : ""),
        cell.schedule);
  };
  command.run = [&](size_t i) { return Run(cells[i]); };
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
