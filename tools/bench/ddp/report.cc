#include "tools/bench/bench_report.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/bench/comparison.h"
#include "tools/bench/median.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kOpsShown = 12;

void AppendBreakdown(const CaseResult& result, const SideResult& side,
                     std::string* table) {
  const double share =
      side.comm_ms > 0 ? 100 * side.exposed_ms / side.comm_ms : 0;
  absl::StrAppendFormat(
      table, "%-10s %-8s %9.2f %9.2f %9.2f %9.2f %7.0f %% %9.2f %9.0f\n",
      result.bench.name, side.name, Median(side.step_ms), Median(side.local_ms),
      side.comm_ms, side.exposed_ms, share, side.cpu_ms, side.faults);
}

// What an operator does, for the profile's sums.
std::string KindOf(const std::string& op) {
  if (absl::StrContains(op, "_fused_")) return "optimizer";
  for (const char* part : {"onvolution", "mm", "_linear_", "attention"}) {
    if (absl::StrContains(op, part)) return "matrices";
  }
  return "the rest";
}

Comparison Compare(const CaseResult& result, const SideResult& peer) {
  return {result.bench.name, peer.name, peer.failure, result.ours.step_ms,
          peer.step_ms};
}

}  // namespace

std::string SpeedTable(const std::vector<CaseResult>& results) {
  std::string table = absl::StrFormat("%-10s %-8s %9s %9s %7s %15s %14s\n",
                                      "case", "peer", "ours ms", "peer ms",
                                      "ratio", "(min to max)", "MiB ours/peer");
  for (const CaseResult& result : results) {
    for (const SideResult& peer : result.peers) {
      const Comparison comparison = Compare(result, peer);
      if (comparison.failed()) {
        absl::StrAppend(&table, FailureLine(comparison));
        continue;
      }
      const Ratio ratio = comparison.ratio();
      absl::StrAppendFormat(
          &table, "%-10s %-8s %9.3f %9.3f %7.2f %7.2f to %4.2f %7.0f /%5.0f\n",
          result.bench.name, peer.name, Median(result.ours.step_ms),
          Median(peer.step_ms), ratio.ratio, ratio.min, ratio.max,
          result.ours.peak_mib, peer.peak_mib);
    }
  }
  return table;
}

std::string BreakdownTable(const std::vector<CaseResult>& results) {
  std::string table = absl::StrFormat(
      "%-10s %-8s %9s %9s %9s %9s %9s %9s %9s\n", "case", "side", "step ms",
      "alone ms", "comm ms", "exposed", "share", "cpu ms", "faults");
  for (const CaseResult& result : results) {
    AppendBreakdown(result, result.ours, &table);
    for (const SideResult& peer : result.peers) {
      if (peer.failure.empty()) AppendBreakdown(result, peer, &table);
    }
  }
  return table;
}

std::string RooflineTable(const std::vector<CaseResult>& results) {
  std::string table = absl::StrFormat(
      "%-10s %9s %12s %15s %9s %12s %9s\n", "case", "GFLOP", "MKL GFLOP/s",
      "oneDNN GFLOP/s", "floor ms", "all-reduce", "Gloo's");
  for (const CaseResult& result : results) {
    const double peak = std::max(result.mkl_gflops, result.one_dnn_gflops);
    absl::StrAppendFormat(
        &table, "%-10s %9.3f %12.0f %15.0f %9.2f %9.2f ms %6.2f ms\n",
        result.bench.name, result.bench.gflop, result.mkl_gflops,
        result.one_dnn_gflops, result.bench.gflop / peak * 1e3,
        result.all_reduce_ms, result.gloo_all_reduce_ms);
  }
  return table;
}

std::string ProfileTable(const CaseResult& result) {
  const double cpu = result.profile.at("cpu_ms");
  std::map<std::string, double> kinds;
  double in_ops = 0;
  for (const json& op : result.profile.at("ops")) {
    kinds[KindOf(op.at("name"))] += op.at("ms").get<double>();
    in_ops += op.at("ms").get<double>();
  }
  std::string table = absl::StrFormat(
      "%s, alone, %.2f ms of processor time a step", result.bench.name, cpu);
  for (const auto& [kind, ms] : kinds) {
    absl::StrAppendFormat(&table, ", %s %.2f", kind, ms);
  }
  absl::StrAppendFormat(&table, ", outside operators %.2f\n", cpu - in_ops);
  const json& ops = result.profile.at("ops");
  for (size_t i = 0; i < std::min(ops.size(), kOpsShown); ++i) {
    absl::StrAppendFormat(
        &table, "  %9.3f ms %7.1f calls  %s\n", ops[i].at("ms").get<double>(),
        ops[i].at("calls").get<double>(), ops[i].at("name").get<std::string>());
  }
  return table;
}

json BenchJson(const std::vector<CaseResult>& results,
               const StartupResult& startup) {
  json cases = json::array();
  json failures = json::array();
  for (const CaseResult& result : results) {
    for (const SideResult& peer : result.peers) {
      const Comparison comparison = Compare(result, peer);
      if (comparison.failed()) {
        failures.push_back(FailureJson(comparison));
      } else {
        cases.push_back(FiguresJson(comparison));
      }
    }
  }
  json report = {{"cases", cases}};
  if (!failures.empty()) report["failures"] = failures;
  if (startup.peer_ms > 0) {
    report["startup"] = {{"ours_ms", startup.ours_ms},
                         {"peer_ms", startup.peer_ms},
                         {"ratio", startup.peer_ms / startup.ours_ms}};
  }
  return report;
}

}  // namespace tandem
