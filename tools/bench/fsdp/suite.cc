#include "tools/bench/fsdp/suite.h"

#include "core/base/status_macros.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

constexpr int kUsualRounds = 7;

}  // namespace

std::vector<Case> FsdpCases(int ranks) {
  std::vector<Case> cases;
  for (const char* model : {"mlp_wide", "gpt_tiny", "gpt_baby", "llama_baby"}) {
    Case made;
    made.name = model;
    made.workload = *WorkloadNamed(model);
    made.workload.batch_size *= ranks;
    made.layout.replicas = ranks;
    made.ours = WithRecipe({Setting()}, kFsdpRecipe);
    cases.push_back(made);
  }
  return cases;
}

absl::StatusOr<SuiteReport> RunFsdpSuite(const BenchFlags& flags,
                                         const std::string& folder) {
  const int ranks = flags.ranks.value_or(2);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", ranks, 2));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesFromFlags(FsdpCases(ranks), flags));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<CaseResult> results,
      RunCases(cases,
               RecipePeers({kFsdpRecipe}, Program::kPyTorch, /*may_fail=*/{}),
               flags, kUsualRounds, folder));
  return SuiteReport{TablesWithMemory(results)};
}

}  // namespace tandem
