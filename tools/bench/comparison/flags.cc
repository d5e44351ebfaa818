#include "tools/bench/comparison/flags.h"

#include "core/base/status_macros.h"
#include "tools/bench/process/program.h"

namespace tandem {

absl::StatusOr<ComparisonOptions> OptionsFromFlags(const BenchFlags& flags,
                                                   int usual_rounds,
                                                   const std::string& folder) {
  ComparisonOptions options;
  options.threads = flags.threads;
  options.rounds = flags.rounds.value_or(usual_rounds);
  options.steps = flags.steps.value_or(0);
  options.folder = folder;
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  options.python = PythonOfFlag(flags.python);
  return options;
}

absl::StatusOr<std::vector<Case>> CasesFromFlags(const std::vector<Case>& all,
                                                 const BenchFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesNamed(all, flags.cases));
  return InDtypes(cases, flags.dtypes);
}

}  // namespace tandem
