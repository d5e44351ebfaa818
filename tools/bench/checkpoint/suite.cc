#include "tools/bench/checkpoint/suite.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/runfile.h"

namespace tandem {
namespace {

// A model of many layers, and one of few: equally many bytes.
std::vector<CheckpointState> States(int64_t megabytes) {
  const auto state = [&](const char* name, int64_t numbers) {
    const int64_t tensors = megabytes * 250000 / numbers;
    return CheckpointState{name, tensors, numbers};
  };
  return {state("tensors of 64 kB", 16000), state("tensors of 16 MB", 4000000)};
}

absl::StatusOr<std::string> FolderOfFlag(const std::string& output,
                                         const std::string& scratch) {
  if (output.empty()) return scratch;
  // A name of this run's own: the folder is deleted at the end.
  return FolderFor(std::filesystem::path(scratch).filename().string(),
                   UserPath(output));
}

}  // namespace

std::vector<Table> CheckpointTables(
    const std::vector<CheckpointResult>& results) {
  Table cases = {"cases",
                 {{"state"},
                  {"operation"},
                  {"bytes"},
                  {"ours", "ms", 1},
                  {"ours", "MB/s", 0},
                  {"peer", "ms", 1},
                  {"peer", "MB/s", 0},
                  {"ratio", "", 2},
                  {"ratio_min", "", 2},
                  {"ratio_max", "", 2}}};
  for (const CheckpointResult& each : results) {
    const Ratio ratio = RatioOf(each.peer_ms, each.ours_ms);
    cases.Add({each.state, each.operation, each.bytes, Median(each.ours_ms),
               MegabytesPerSecond(each.bytes, each.ours_ms),
               Median(each.peer_ms),
               MegabytesPerSecond(each.bytes, each.peer_ms), ratio.ratio,
               ratio.min, ratio.max});
  }
  return {cases};
}

absl::StatusOr<SuiteReport> RunCheckpointSuite(const BenchFlags& flags,
                                               const std::string& folder) {
  CheckpointBench bench;
  bench.rounds = flags.rounds.value_or(7);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("megabytes", flags.megabytes, 16));
  TANDEM_ASSIGN_OR_RETURN(const std::string python, PythonOfFlag(flags.python));
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/checkpoints.py"));
  bench.peer = {"/usr/bin/env", python, script};
  TANDEM_ASSIGN_OR_RETURN(bench.folder, FolderOfFlag(flags.output, folder));
  bench.states = States(flags.megabytes);
  const auto results = CompareCheckpoints(bench);
  if (bench.folder != folder) {
    std::error_code ignored;
    std::filesystem::remove_all(bench.folder, ignored);
  }
  TANDEM_RETURN_IF_ERROR(results.status());
  SuiteReport report;
  report.tables = CheckpointTables(*results);
  return report;
}

}  // namespace tandem
