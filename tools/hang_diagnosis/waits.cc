#include "tools/hang_diagnosis/waits.h"

#include <cstdint>
#include <utility>

namespace tandem {
namespace {

// Ranks that take part in the entry beside this one.
std::vector<int> OtherParticipants(const JobHistory& history, int rank,
                                   const FlightEntry& entry) {
  if (entry.kind != FlightKind::kCollective) return {entry.peer};
  std::vector<int> others;
  for (int each : history.groups().at(history.GroupId(rank, entry)).ranks) {
    if (each != rank) others.push_back(each);
  }
  return others;
}

bool IsAwaited(const FlightEntry& entry) {
  return entry.kind != FlightKind::kAction && entry.awaited_ns > 0 &&
         entry.state != FlightState::kCompleted;
}

// Had the rank given up when a wait for it began? Then it would never come.
bool HadGivenUp(const JobHistory& history, int rank, const RankWait& wait) {
  const auto dump = history.dumps().find(rank);
  return dump != history.dumps().end() &&
         dump->second.trigger != FlightTrigger::kSignal &&
         dump->second.dumped_ns < wait.since_ns();
}

RankWait WaitFor(const JobHistory& history, int rank,
                 const FlightEntry& entry) {
  const int64_t dumped_ns = history.dumps().at(rank).dumped_ns;
  RankWait wait{rank, &entry, {}};
  for (int other : OtherParticipants(history, rank, entry)) {
    if (history.HadJoined(rank, entry, other, dumped_ns)) continue;
    if (HadGivenUp(history, other, wait)) continue;
    wait.missing.push_back(other);
  }
  return wait;
}

// All have come to `entry`; the rank's next of the group to which some have
// not.
RankWait WaitBehind(const JobHistory& history, int rank,
                    const FlightEntry& entry) {
  for (const FlightEntry& each : history.dumps().at(rank).entries) {
    if (each.kind != FlightKind::kCollective || each.group != entry.group ||
        each.id <= entry.id || each.state == FlightState::kCompleted) {
      continue;
    }
    RankWait wait = WaitFor(history, rank, each);
    if (!wait.missing.empty()) return wait;
  }
  return {rank, &entry, {}};
}

// A wait for ranks that have come to it and do nothing for it.
RankWait WaitForIdle(const JobHistory& history, int rank,
                     const FlightEntry& entry) {
  RankWait wait{rank, &entry, {}, /*has_started=*/true};
  for (int other : OtherParticipants(history, rank, entry)) {
    const FlightEntry* const counterpart =
        history.Counterpart(rank, entry, other);
    if (counterpart != nullptr && counterpart->awaited_ns == 0 &&
        counterpart->state != FlightState::kCompleted) {
      wait.missing.push_back(other);
    }
  }
  return wait;
}

}  // namespace

std::vector<RankWait> WaitsOf(const JobHistory& history) {
  std::vector<RankWait> waits;
  for (const auto& [rank, dump] : history.dumps()) {
    for (const FlightEntry& entry : dump.entries) {
      if (!IsAwaited(entry)) continue;
      RankWait wait = WaitFor(history, rank, entry);
      if (entry.kind == FlightKind::kCollective && wait.missing.empty()) {
        wait = WaitBehind(history, rank, entry);
        if (wait.missing.empty()) wait = WaitForIdle(history, rank, entry);
      }
      if (!wait.missing.empty()) waits.push_back(std::move(wait));
    }
  }
  return waits;
}

std::set<int> RanksAtCause(const std::vector<RankWait>& waits) {
  std::set<int> awaited;
  for (const RankWait& each : waits) {
    awaited.insert(each.missing.begin(), each.missing.end());
  }
  for (const RankWait& each : waits) awaited.erase(each.rank);
  return awaited;
}

}  // namespace tandem
