// What safety costs a training: recorder, checks, checkpoints.
// docs/performance.md, or --help.

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/process/program.h"
#include "tools/bench/safety/report.h"
#include "tools/bench/safety/run.h"

ABSL_FLAG(std::vector<std::string>, models,
          std::vector<std::string>({"mlp_wide", "gpt_tiny"}),
          "Networks: mlp_small, mlp_wide, mlp_deep, resnet18, gpt_tiny, "
          "gpt_baby, gpt2.");
ABSL_FLAG(int, ranks, 2, "Replicas.");
ABSL_FLAG(int, steps, 350, "Steps of a job.");
ABSL_FLAG(int, save_every, 100, "Steps between checkpoints.");
ABSL_FLAG(int, rounds, 5, "How often each way comes.");
ABSL_FLAG(std::string, json, "", "File for the figures.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains under DDP with each means of safety and without any, in turns:\n"
    "the flight recorder, --skip_nonfinite, --check_replicas_every,\n"
    "checkpoints that are written behind (--async_save) and that are waited\n"
    "for, --check_finite. Its first line is what two equal jobs differ by.\n"
    "Checkpoints go into $TMPDIR, else /tmp.\n\n"
    "  bench_safety                        mlp_wide, gpt_tiny: up to an hour\n"
    "  bench_safety --models=mlp_small --steps=2000 --rounds=3\n";

absl::Status Run(const std::string& scratch) {
  SafetyBench bench;
  bench.models = absl::GetFlag(FLAGS_models);
  bench.ranks = absl::GetFlag(FLAGS_ranks);
  bench.steps = absl::GetFlag(FLAGS_steps);
  bench.save_every = absl::GetFlag(FLAGS_save_every);
  bench.rounds = absl::GetFlag(FLAGS_rounds);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", bench.ranks, 2));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("save_every", absl::GetFlag(FLAGS_save_every), 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("steps", absl::GetFlag(FLAGS_steps),
                                      absl::GetFlag(FLAGS_save_every) + 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  bench.folder = scratch;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<SafetyResult> results,
                          MeasureSafety(bench));
  absl::PrintF("%s", SafetyTable(results));
  return WriteJson(absl::GetFlag(FLAGS_json), SafetyJson(results));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_safety", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
