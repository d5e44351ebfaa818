#include "tools/bench/gpt/suite.h"

#include <nlohmann/json.hpp>

#include "core/base/status_macros.h"
#include "tools/bench/comparison/flags.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/gpt/cases.h"
#include "tools/bench/gpt/formula.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kUsualRounds = 7;

absl::StatusOr<std::vector<Case>> CasesOfFlags(BenchFlags flags) {
  if (flags.cases.empty()) flags.cases = {"gpt_baby"};
  return CasesFromFlags(GptCases({flags.batch_size, flags.tokens}), flags);
}

// Of tandem, and of a peer, which has a process for each device.
double MemoryByFormula(const CaseResult& result, const SideResult& side) {
  const Layout& ours = result.bench.layout;
  return FormulaMib(result.bench.workload,
                    &side == &result.ours ? ours : ours.OverRanks(),
                    side.setting);
}

}  // namespace

std::vector<Table> GptTables(const std::vector<CaseResult>& results) {
  CaseTables cases({{"ours", "tokens/s", 0},
                    {"peer", "tokens/s", 0},
                    {"ours", "GFLOPS", 0},
                    {"peer", "GFLOPS", 0},
                    {"ours", "MiB", 0},
                    {"peer", "MiB", 0},
                    {"ours_formula", "MiB", 0},
                    {"peer_formula", "MiB", 0},
                    {"ours_setting"},
                    {"peer_setting"}});
  for (const CaseResult& result : results) {
    const SideResult& ours = result.ours;
    const Workload& workload = result.bench.workload;
    const auto tokens = static_cast<double>(workload.input_shape.front());
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      const double our_rate = SamplesPerSecond(result, ours);
      const double peer_rate = SamplesPerSecond(result, peer);
      return {our_rate * tokens,
              peer_rate * tokens,
              our_rate * workload.gflop,
              peer_rate * workload.gflop,
              ours.peak_mib,
              peer.peak_mib,
              MemoryByFormula(result, ours),
              MemoryByFormula(result, peer),
              ToString(ours.setting),
              ToString(peer.setting)};
    });
  }
  return cases.tables();
}

absl::StatusOr<SuiteReport> RunGptSuite(const BenchFlags& flags,
                                        const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", flags.peers, {"eager", "compile"}));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases, CasesOfFlags(flags));
  TANDEM_ASSIGN_OR_RETURN(const ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  const bool wanted = !flags.peers.empty();  // by name
  const std::vector<std::string> peers =
      wanted ? flags.peers : std::vector<std::string>{"eager", "compile"};
  std::vector<CaseResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(
        results.emplace_back(),
        RunCase(bench, GptPeers(bench, peers, wanted),
                KnownLosses(bench.workload.dtype), options));
    // As soon as it is known: a run of all takes a while.
    if (cases.size() > 1) ShowTables(GptTables({results.back()}));
  }
  SuiteReport report;
  report.tables = GptTables(results);
  return report;
}

}  // namespace tandem
