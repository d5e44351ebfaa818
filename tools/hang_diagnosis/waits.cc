#include "tools/hang_diagnosis/waits.h"

#include <utility>

namespace tandem {
namespace {

// Who takes part in the entry beside the rank.
std::vector<int> OthersOf(const JobHistory& history, int rank,
                          const FlightEntry& entry) {
  if (entry.kind != FlightKind::kCollective) return {entry.peer};
  std::vector<int> others;
  for (int each : history.groups().at(history.GroupIdOf(rank, entry)).ranks) {
    if (each != rank) others.push_back(each);
  }
  return others;
}

bool IsAwaited(const FlightEntry& entry) {
  return entry.kind != FlightKind::kAction && entry.awaited_ns > 0 &&
         entry.state != FlightState::kCompleted;
}

}  // namespace

std::vector<RankWait> WaitsOf(const JobHistory& history) {
  std::vector<RankWait> waits;
  for (const auto& [rank, dump] : history.dumps()) {
    for (const FlightEntry& entry : dump.entries) {
      if (!IsAwaited(entry)) continue;
      RankWait wait{rank, &entry, {}};
      for (int other : OthersOf(history, rank, entry)) {
        if (history.HadJoined(rank, entry, other, dump.dumped_ns)) continue;
        wait.missing.push_back(other);
      }
      if (!wait.missing.empty()) waits.push_back(std::move(wait));
    }
  }
  return waits;
}

std::set<int> CausesOf(const std::vector<RankWait>& waits) {
  std::set<int> awaited;
  for (const RankWait& each : waits) {
    awaited.insert(each.missing.begin(), each.missing.end());
  }
  for (const RankWait& each : waits) awaited.erase(each.rank);
  return awaited;
}

}  // namespace tandem
