#include "tools/bench/comparison/report.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "core/device/host_resources.h"

namespace tandem {
namespace {

using nlohmann::json;

// Places in CaseTables::tables().
constexpr size_t kCases = 0, kFailures = 1, kKernels = 2, kFloors = 3;

constexpr double kMib = 1 << 20;

}  // namespace

Ratio PairedRatio(const CaseResult& result, const SideResult& peer) {
  return PairedRatio(peer.step_ms, result.ours.step_ms);
}

double SamplesPerSecond(const CaseResult& result, const SideResult& side) {
  return static_cast<double>(result.bench.workload.batch_size) * 1e3 /
         Median(side.step_ms);
}

bool HasFailures(const CaseResult& result) {
  return absl::c_any_of(result.peers,
                        [](const SideResult& peer) { return peer.failed(); });
}

CaseTables::CaseTables(const std::vector<Column>& further)
    : tables_{{"cases",
               {{"name"},
                {"peer"},
                {"ours", "ms"},
                {"peer", "ms"},
                {"ratio", "", 2},
                {"ratio_min", "", 2},
                {"ratio_max", "", 2}}},
              {"failures", {{"name"}, {"peer"}, {"reason"}}},
              {"kernels", {{"name"}, {"side"}, {"kernels"}, {"processor"}}},
              {"floors",
               {{"name"},
                {"step", "ms"},
                {"products", "ms"},
                {"memory", "GB/s", 1},
                {"moved", "MiB", 0},
                {"moving", "ms"},
                {"floor", "ms"},
                {"of_a_step", "", 2}}}} {
  absl::c_copy(further, std::back_inserter(tables_[kCases].columns));
}

void CaseTables::Add(
    const CaseResult& result,
    absl::FunctionRef<std::vector<json>(const SideResult& peer)> further) {
  const std::string& name = result.bench.name;
  AddKernels(result, result.ours);
  AddFloor(result);
  for (const SideResult& peer : result.peers) {
    if (peer.failed()) {
      tables_[kFailures].Add({name, peer.name, peer.failure});
      continue;
    }
    AddKernels(result, peer);
    const Ratio ratio = PairedRatio(result, peer);
    std::vector<json> row = {name,
                             peer.name,
                             Median(result.ours.step_ms),
                             Median(peer.step_ms),
                             ratio.ratio,
                             ratio.min,
                             ratio.max};
    for (json& figure : further(peer)) row.push_back(std::move(figure));
    tables_[kCases].Add(std::move(row));
  }
}

std::vector<Table> TablesWithMemory(const std::vector<CaseResult>& results) {
  CaseTables cases({{"ours", "MiB", 0}, {"peer", "MiB", 0}});
  for (const CaseResult& result : results) {
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      return {result.ours.peak_mib, peer.peak_mib};
    });
  }
  return cases.tables();
}

void CaseTables::AddFloor(const CaseResult& result) {
  const std::optional<MeasuredFloor>& floor = result.ours.floor;
  if (!floor) return;
  const double step_ms = Median(result.ours.step_ms);
  const double floor_ms =
      floor->ms() / result.bench.layout.devices_of_replica();
  tables_[kFloors].Add({result.bench.name, step_ms, floor->products_ms,
                        floor->gb_per_s, floor->moved_bytes / kMib,
                        floor->MovingMs(floor->moved_bytes), floor_ms,
                        floor_ms / step_ms});
}

void CaseTables::AddKernels(const CaseResult& result, const SideResult& side) {
  if (side.kernels.empty() || side.failed()) return;
  std::vector<json> row = {result.bench.workload.dtype, side.name, side.kernels,
                           DescribeProcessor()};
  if (absl::c_linear_search(tables_[kKernels].rows, row)) return;
  tables_[kKernels].Add(std::move(row));
}

}  // namespace tandem
