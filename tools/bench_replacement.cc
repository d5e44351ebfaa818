// What a rank's death costs, by replacement and by restart.
// docs/reliability.md, or --help.

#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/process/program.h"
#include "tools/bench/replacement/run.h"

ABSL_FLAG(int, ranks, 3, "Replicas; the last one dies.");
ABSL_FLAG(int, steps, 300, "Steps of the epoch, of all ranks.");
ABSL_FLAG(int, dies_at, 150, "The step in which it dies.");
ABSL_FLAG(int, save_every, 100, "Steps between checkpoints.");
ABSL_FLAG(int, rounds, 3, "How often each way comes.");
ABSL_FLAG(std::string, model, "mlp_wide",
          "Network: mlp_small, mlp_wide, mlp_deep, resnet18, gpt_tiny, "
          "gpt_baby, gpt2.");
ABSL_FLAG(std::string, json, "", "File for the figures.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Times an epoch in which nobody dies, one in which a rank dies and is\n"
    "replaced (--replace_replicas), and one in which all are started again\n"
    "from the last checkpoint (--max_restarts), in turns.\n\n"
    "  bench_replacement                        three ranks, mlp_wide\n"
    "  bench_replacement --steps=2000 --dies_at=1099 --save_every=1000\n";

absl::Status Run(const std::string& folder) {
  ReplacementBench bench;
  bench.ranks = absl::GetFlag(FLAGS_ranks);
  bench.steps = absl::GetFlag(FLAGS_steps);
  bench.dies_at = absl::GetFlag(FLAGS_dies_at);
  bench.save_every = absl::GetFlag(FLAGS_save_every);
  bench.rounds = absl::GetFlag(FLAGS_rounds);
  bench.model = absl::GetFlag(FLAGS_model);
  bench.folder = folder;
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", bench.ranks, 2));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("dies_at", absl::GetFlag(FLAGS_dies_at), 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("steps", absl::GetFlag(FLAGS_steps),
                                      absl::GetFlag(FLAGS_dies_at)));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("save_every", absl::GetFlag(FLAGS_save_every), 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  TANDEM_ASSIGN_OR_RETURN(const ReplacementResult result,
                          MeasureReplacement(bench));
  absl::PrintF("%s", ReplacementTable(result));
  return WriteJson(absl::GetFlag(FLAGS_json), ReplacementJson(result));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_replacement", tandem::kUsage, argc,
                                 argv, tandem::Run);
}
