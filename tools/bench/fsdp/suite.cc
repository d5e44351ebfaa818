#include "tools/bench/fsdp/suite.h"

#include <nlohmann/json.hpp>

#include "core/base/status_macros.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kUsualRounds = 7;

}  // namespace

std::vector<Case> FsdpCases(int ranks) {
  std::vector<Case> cases;
  for (const char* model : {"mlp_wide", "gpt_tiny", "gpt_baby"}) {
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

std::vector<Table> FsdpTables(const std::vector<CaseResult>& results) {
  CaseTables cases({{"ours", "MiB", 0}, {"peer", "MiB", 0}});
  for (const CaseResult& result : results) {
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      return {result.ours.peak_mib, peer.peak_mib};
    });
  }
  return cases.tables();
}

absl::StatusOr<SuiteReport> RunFsdpSuite(const BenchFlags& flags,
                                         const std::string& folder) {
  const int ranks = flags.ranks.value_or(2);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", ranks, 2));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesFromFlags(FsdpCases(ranks), flags));
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  options.backend = flags.backend;
  const std::vector<Peer> peers =
      RecipePeers({kFsdpRecipe}, Program::kPyTorch, /*may_fail=*/{});
  std::vector<CaseResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(
        results.emplace_back(),
        RunCase(bench, peers, KnownLosses(bench.workload.dtype), options));
  }
  return SuiteReport{FsdpTables(results)};
}

}  // namespace tandem
