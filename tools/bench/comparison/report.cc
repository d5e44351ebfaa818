#include "tools/bench/comparison/report.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/text_table.h"
#include "core/device/processor.h"

namespace tandem {

using nlohmann::json;

std::string Milliseconds(double ms) {
  return absl::StrFormat("%.*f", ms < 10 ? 3 : 2, ms);
}

Ratio RatioOf(const CaseResult& result, const SideResult& peer) {
  return RatioOf(peer.step_ms, result.ours.step_ms);
}

SpeedTable::SpeedTable(const std::vector<std::string>& further_columns)
    : rows_({{"case", "peer", "ours ms", "peer ms", "ratio", "(min to max)"}}) {
  rows_.front().insert(rows_.front().end(), further_columns.begin(),
                       further_columns.end());
}

void SpeedTable::Add(
    const CaseResult& result,
    absl::FunctionRef<std::vector<std::string>(const SideResult& peer)>
        further) {
  AddKernels(result, result.ours);
  for (const SideResult& peer : result.peers) {
    AddKernels(result, peer);
    if (peer.failed()) {
      absl::StrAppend(&failures_, result.bench.name, " ", peer.name,
                      ": did not run: ", peer.failure, "\n");
      continue;
    }
    const Ratio ratio = RatioOf(result, peer);
    std::vector<std::string> row = {result.bench.name,
                                    peer.name,
                                    Milliseconds(Median(result.ours.step_ms)),
                                    Milliseconds(Median(peer.step_ms)),
                                    absl::StrFormat("%.2f", ratio.ratio),
                                    Range(ratio)};
    for (std::string& cell : further(peer)) row.push_back(std::move(cell));
    rows_.push_back(std::move(row));
  }
}

void SpeedTable::AddKernels(const CaseResult& result, const SideResult& side) {
  if (side.kernels.empty() || side.failed()) return;
  std::string line = absl::StrCat(result.bench.workload.dtype, ", ", side.name,
                                  ": ", side.kernels);
  if (!absl::c_linear_search(kernels_, line)) {
    kernels_.push_back(std::move(line));
  }
}

std::string SpeedTable::Text() const {
  if (kernels_.empty()) return TextTable(rows_) + failures_;
  return absl::StrCat(DescribeProcessor(), "\n", TextTable(rows_),
                      absl::StrJoin(kernels_, "\n"), "\n", failures_);
}

namespace {

void AddKernels(const CaseResult& result, const SideResult& peer,
                json& figures) {
  if (result.ours.kernels.empty()) return;
  figures["ours_kernels"] = result.ours.kernels;
  figures["peer_kernels"] = peer.kernels;
  figures["processor"] = DescribeProcessor();
}

}  // namespace

void AddToJson(const CaseResult& result,
               absl::FunctionRef<json(const SideResult& peer)> further,
               json& report) {
  for (const SideResult& peer : result.peers) {
    if (peer.failed()) {
      report["failures"].push_back({{"name", result.bench.name},
                                    {"peer", peer.name},
                                    {"reason", peer.failure}});
      continue;
    }
    const Ratio ratio = RatioOf(result, peer);
    json figures = {{"name", result.bench.name},
                    {"ours_ms", Median(result.ours.step_ms)},
                    {"peer_ms", Median(peer.step_ms)},
                    {"peer", peer.name},
                    {"ratio", ratio.ratio},
                    {"ratio_min", ratio.min},
                    {"ratio_max", ratio.max}};
    AddKernels(result, peer, figures);
    figures.update(further(peer));
    report["cases"].push_back(std::move(figures));
  }
}

bool HasFailures(const CaseResult& result) {
  return std::any_of(result.peers.begin(), result.peers.end(),
                     [](const SideResult& peer) { return peer.failed(); });
}

}  // namespace tandem
