#include "tools/bench/ddp/report.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text_table.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/measure/product_floor.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kOpsShown = 12;

std::vector<std::string> BreakdownRow(const CaseResult& result,
                                      const SideResult& side) {
  const double share =
      side.comm_ms > 0 ? 100 * side.exposed_ms / side.comm_ms : 0;
  return {result.bench.name,
          side.name,
          Milliseconds(Median(side.step_ms)),
          Milliseconds(Median(side.alone_ms)),
          Milliseconds(side.comm_ms),
          Milliseconds(side.exposed_ms),
          absl::StrFormat("%.0f %%", share),
          Milliseconds(MedianOrZero(side.cpu_ms)),
          absl::StrFormat("%.0f", MedianOrZero(side.faults))};
}

// What an operator does, for the profile's sums.
std::string KindOf(const std::string& op) {
  if (absl::StrContains(op, "_fused_")) return "optimizer";
  return IsProduct(op) ? "matrices" : "the rest";
}

// The processor time of a step, and the sums of its kinds of operators.
std::string ProfileSums(const DdpResult& result) {
  const double cpu = result.profile.at("cpu_ms");
  std::map<std::string, double> kinds;
  double in_ops = 0;
  for (const json& op : result.profile.at("ops")) {
    kinds[KindOf(op.at("name"))] += op.at("ms").get<double>();
    in_ops += op.at("ms").get<double>();
  }
  std::string line = absl::StrFormat(
      "%s, alone, %.2f ms of processor time a step", result.bench.name, cpu);
  for (const auto& [kind, ms] : kinds) {
    absl::StrAppendFormat(&line, ", %s %.2f", kind, ms);
  }
  absl::StrAppendFormat(&line, ", outside operators %.2f\n", cpu - in_ops);
  return line;
}

}  // namespace

std::string DdpSpeedTable(const std::vector<DdpResult>& results) {
  SpeedTable table({"MiB ours/peer"});
  for (const DdpResult& result : results) {
    table.Add(result, [&](const SideResult& peer) -> std::vector<std::string> {
      return {
          absl::StrFormat("%.0f / %.0f", result.ours.peak_mib, peer.peak_mib)};
    });
  }
  return table.Text();
}

std::string BreakdownTable(const std::vector<DdpResult>& results) {
  std::vector<std::vector<std::string>> rows = {
      {"case", "side", "step ms", "alone ms", "comm ms", "exposed", "share",
       "cpu ms", "faults"}};
  for (const DdpResult& result : results) {
    rows.push_back(BreakdownRow(result, result.ours));
    for (const SideResult& peer : result.peers) {
      if (!peer.failed()) rows.push_back(BreakdownRow(result, peer));
    }
  }
  return TextTable(rows);
}

std::string RooflineTable(const std::vector<DdpResult>& results) {
  std::vector<std::vector<std::string>> rows = {
      {"case", "GFLOP", "MKL GFLOP/s", "oneDNN GFLOP/s", "floor ms",
       "products ms", "of a step", "all-reduce", "Gloo's"}};
  for (const DdpResult& result : results) {
    const double peak = std::max(result.mkl_gflops, result.one_dnn_gflops);
    const Workload& workload = result.bench.workload;
    const double gflop = workload.gflop *
                         static_cast<double>(workload.batch_size) /
                         result.bench.layout.replicas;
    const double products_ms = result.products.at("ms");
    rows.push_back(
        {result.bench.name, absl::StrFormat("%.3f", gflop),
         absl::StrFormat("%.0f", result.mkl_gflops),
         absl::StrFormat("%.0f", result.one_dnn_gflops),
         absl::StrFormat("%.2f", gflop / peak * 1e3),
         absl::StrFormat("%.2f", products_ms),
         absl::StrFormat("%.0f %%",
                         100 * products_ms / Median(result.ours.alone_ms)),
         absl::StrFormat("%.2f ms", result.all_reduce_ms),
         absl::StrFormat("%.2f ms", result.gloo_all_reduce_ms)});
  }
  return TextTable(rows);
}

std::string ProfileTable(const DdpResult& result) {
  std::string table = ProfileSums(result);
  const json& ops = result.profile.at("ops");
  for (size_t i = 0; i < std::min(ops.size(), kOpsShown); ++i) {
    absl::StrAppendFormat(
        &table, "  %9.3f ms %7.1f calls  %s\n", ops[i].at("ms").get<double>(),
        ops[i].at("calls").get<double>(), ops[i].at("name").get<std::string>());
  }
  absl::StrAppend(&table, "its products alone, each warm:\n");
  const json& products = result.products.at("products");
  for (size_t i = 0; i < std::min(products.size(), kOpsShown); ++i) {
    const json& each = products[i];
    absl::StrAppendFormat(
        &table, "  %9.3f ms %7.1f calls  %s: %s\n", each.at("ms").get<double>(),
        each.at("calls").get<double>(), each.at("name").get<std::string>(),
        each.at("operands").get<std::string>());
  }
  return table;
}

json DdpJson(const std::vector<DdpResult>& results,
             const StartupResult& startup) {
  json report = {{"cases", json::array()}};
  for (const DdpResult& result : results) {
    AddToJson(
        result, [](const SideResult&) { return json::object(); }, report);
  }
  if (startup.peer_ms > 0) {
    report["startup"] = {{"ours_ms", startup.ours_ms},
                         {"peer_ms", startup.peer_ms},
                         {"ratio", startup.peer_ms / startup.ours_ms}};
  }
  return report;
}

}  // namespace tandem
