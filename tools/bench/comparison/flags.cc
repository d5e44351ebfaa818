#include "tools/bench/comparison/flags.h"

#include <torch/headeronly/version.h>

#include <string>

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "tools/bench/process/program.h"

ABSL_FLAG(std::string, python, "",
          "Python that imports torch " TORCH_VERSION
          ". Empty: $TANDEM_PEER_PYTHON, or python3.");
ABSL_FLAG(int, threads, 1,
          "Threads for the operators of each process, or of each device where "
          "a process has several.");
ABSL_FLAG(std::vector<std::string>, dtypes, {"fp32"},
          "Of products and activations: fp32, bf16 (under autocast; parameters "
          "stay fp32), or both, with commas between.");
ABSL_FLAG(int, steps, 0, "Steps in a round. 0: as many as suit the case.");
ABSL_FLAG(std::string, json, "", "File to write the figures to.");

namespace tandem {

absl::StatusOr<ComparisonOptions> OptionsFromFlags(int rounds) {
  ComparisonOptions options;
  options.threads = absl::GetFlag(FLAGS_threads);
  options.rounds = rounds;
  options.steps = absl::GetFlag(FLAGS_steps);
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  options.python = PythonOfFlag(absl::GetFlag(FLAGS_python));
  return options;
}

absl::StatusOr<std::vector<Case>> CasesFromFlags(
    const std::vector<Case>& all, const std::vector<std::string>& names) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesNamed(all, names));
  return InDtypes(cases, absl::GetFlag(FLAGS_dtypes));
}

absl::Status WriteFigures(const nlohmann::json& figures) {
  return WriteJson(absl::GetFlag(FLAGS_json), figures);
}

}  // namespace tandem
