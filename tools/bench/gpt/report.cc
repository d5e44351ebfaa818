#include "tools/bench/gpt/report.h"

#include "absl/strings/str_format.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/gpt/formula.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

double SamplesPerSecond(const CaseResult& result, const SideResult& side) {
  return static_cast<double>(result.bench.workload.batch_size) * 1e3 /
         Median(side.step_ms);
}

double TokensPerSecond(const CaseResult& result, const SideResult& side) {
  return SamplesPerSecond(result, side) *
         static_cast<double>(result.bench.workload.input_shape.front());
}

// The peer has a process for each device.
double PeerFormulaMib(const CaseResult& result, const SideResult& peer) {
  return FormulaMib(result.bench.workload, result.bench.layout.OverRanks(),
                    peer.setting);
}

double OurFormulaMib(const CaseResult& result) {
  return FormulaMib(result.bench.workload, result.bench.layout,
                    result.ours.setting);
}

double Gflops(const CaseResult& result, const SideResult& side) {
  return SamplesPerSecond(result, side) * result.bench.workload.gflop;
}

}  // namespace

std::string GptTable(const std::vector<CaseResult>& results) {
  SpeedTable table({"tokens/s ours/peer", "GFLOP/s", "MiB a rank", "by formula",
                    "our setting", "peer's setting"});
  for (const CaseResult& result : results) {
    const SideResult& ours = result.ours;
    table.Add(result, [&](const SideResult& peer) -> std::vector<std::string> {
      return {absl::StrFormat("%.0f / %.0f", TokensPerSecond(result, ours),
                              TokensPerSecond(result, peer)),
              absl::StrFormat("%.0f / %.0f", Gflops(result, ours),
                              Gflops(result, peer)),
              absl::StrFormat("%.0f / %.0f", ours.peak_mib, peer.peak_mib),
              absl::StrFormat("%.0f / %.0f", OurFormulaMib(result),
                              PeerFormulaMib(result, peer)),
              ToString(ours.setting),
              ToString(peer.setting)};
    });
  }
  return table.Text();
}

json GptJson(const std::vector<CaseResult>& results) {
  json report = {{"cases", json::array()}};
  for (const CaseResult& result : results) {
    const SideResult& ours = result.ours;
    const auto further = [&](const SideResult& peer) {
      return json{{"ours_tokens_per_s", TokensPerSecond(result, ours)},
                  {"peer_tokens_per_s", TokensPerSecond(result, peer)},
                  {"ours_gflops", Gflops(result, ours)},
                  {"peer_gflops", Gflops(result, peer)},
                  {"ours_mib", ours.peak_mib},
                  {"peer_mib", peer.peak_mib},
                  {"ours_formula_mib", OurFormulaMib(result)},
                  {"peer_formula_mib", PeerFormulaMib(result, peer)},
                  {"ours_setting", ToString(ours.setting)},
                  {"peer_setting", ToString(peer.setting)}};
    };
    AddToJson(result, further, report);
  }
  return report;
}

}  // namespace tandem
