// Checkpoints beside torch.distributed.checkpoint. docs/reliability.md, or
// --help.

#include <torch/headeronly/version.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "tools/bench/checkpoint/report.h"
#include "tools/bench/checkpoint/run.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/runfile.h"

ABSL_FLAG(int, rounds, 7, "How often the sides take turns.");
ABSL_FLAG(int, megabytes, 256, "What each of the states holds.");
ABSL_FLAG(std::string, output, "",
          "Folder on the disk that is measured; both sides' files in it go at "
          "the end. Empty: a temporary one.");
ABSL_FLAG(std::string, python, "",
          "A Python with torch " TORCH_VERSION
          "; empty: $TANDEM_PEER_PYTHON, else python3.");
ABSL_FLAG(std::string, json, "", "File for the figures.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Times tandem's checkpoints and torch.distributed.checkpoint's: a save,\n"
    "until it is synced; a load, on our side with all checksums; and how long\n"
    "an asynchronous save stalls the loop. One rank each, in turns, on one\n"
    "core. What is loaded must be what was saved first.\n\n"
    "  bench_checkpoint                        some minutes\n"
    "  bench_checkpoint --output=/dev/shm      without a disk\n";

// A model of many layers, and one of few: equally many bytes.
std::vector<CheckpointState> States(int64_t megabytes) {
  const auto state = [&](const char* name, int64_t numbers) {
    const int64_t tensors = megabytes * 250000 / numbers;
    return CheckpointState{name, tensors, numbers};
  };
  return {state("tensors of 64 kB", 16000), state("tensors of 16 MB", 4000000)};
}

absl::StatusOr<std::string> FolderOfFlag(const std::string& scratch) {
  const std::string given = absl::GetFlag(FLAGS_output);
  if (given.empty()) return scratch;
  // A name of this run's own: the folder is deleted at the end.
  return FolderFor(std::filesystem::path(scratch).filename().string(),
                   UserPath(given));
}

absl::Status Run(const std::string& scratch) {
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("rounds", absl::GetFlag(FLAGS_rounds), 1));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("megabytes", absl::GetFlag(FLAGS_megabytes), 16));
  CheckpointBench bench;
  TANDEM_ASSIGN_OR_RETURN(const std::string python,
                          PythonOfFlag(absl::GetFlag(FLAGS_python)));
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/checkpoints.py"));
  bench.peer = {"/usr/bin/env", python, script};
  TANDEM_ASSIGN_OR_RETURN(bench.folder, FolderOfFlag(scratch));
  bench.states = States(absl::GetFlag(FLAGS_megabytes));
  bench.rounds = absl::GetFlag(FLAGS_rounds);
  const auto results = CompareCheckpoints(bench);
  if (bench.folder != scratch) {
    std::error_code ignored;
    std::filesystem::remove_all(bench.folder, ignored);
  }
  TANDEM_RETURN_IF_ERROR(results.status());
  absl::PrintF("%s", CheckpointTable(*results));
  return WriteJson(absl::GetFlag(FLAGS_json), CheckpointJson(*results));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_checkpoint", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
