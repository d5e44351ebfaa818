#include "tools/hang_diagnosis/history.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

bool SamePurpose(const FlightEntry& one, const FlightEntry& other) {
  if (one.what.empty() || other.what.empty()) return true;
  return one.what == other.what && one.index == other.index &&
         one.stage == other.stage && one.microbatch == other.microbatch;
}

// A send and the receive that takes it.
bool AreEnds(const FlightEntry& one, const FlightEntry& other) {
  const bool meet =
      (one.kind == FlightKind::kSend && other.kind == FlightKind::kReceive) ||
      (one.kind == FlightKind::kReceive && other.kind == FlightKind::kSend);
  return meet && one.tag == other.tag && one.sequence == other.sequence;
}

}  // namespace

bool AreAlike(const FlightEntry& one, const FlightEntry& other) {
  return one.kind == other.kind && one.operation == other.operation &&
         one.peer == other.peer && one.tag == other.tag &&
         one.dtype == other.dtype && one.sizes == other.sizes &&
         SamePurpose(one, other);
}

JobHistory::JobHistory(std::vector<FlightDump> dumps) {
  for (FlightDump& each : dumps) {
    world_size_ = std::max(world_size_, each.world_size);
    dumps_.emplace(each.rank, std::move(each));
  }
  for (const auto& [rank, dump] : dumps_) {
    for (const FlightGroupFacts& each : dump.groups) {
      GroupHistory& group = groups_[each.id];
      group.name = each.name;
      group.ranks = each.ranks;
      group.scheduled[rank] = each.scheduled;
      group.collectives[rank];
    }
    for (const FlightEntry& each : dump.entries) {
      if (each.kind != FlightKind::kCollective) continue;
      groups_[GroupId(rank, each)].collectives[rank][each.sequence] = &each;
    }
  }
}

const std::string& JobHistory::GroupId(int rank,
                                       const FlightEntry& entry) const {
  return dumps_.at(rank).groups.at(static_cast<size_t>(entry.group)).id;
}

const FlightEntry* JobHistory::Counterpart(int of, const FlightEntry& entry,
                                           int rank) const {
  const auto dump = dumps_.find(rank);
  if (dump == dumps_.end()) return nullptr;
  const std::string& id = GroupId(of, entry);
  if (entry.kind == FlightKind::kCollective) {
    const auto& all = groups_.at(id).collectives;
    const auto of_rank = all.find(rank);
    if (of_rank == all.end()) return nullptr;
    const auto found = of_rank->second.find(entry.sequence);
    return found == of_rank->second.end() ? nullptr : found->second;
  }
  for (const FlightEntry& each : dump->second.entries) {
    if (each.kind == FlightKind::kAction || each.peer != of) continue;
    if (AreEnds(entry, each) && GroupId(rank, each) == id) return &each;
  }
  return nullptr;
}

bool JobHistory::HadJoined(int of, const FlightEntry& entry, int rank,
                           int64_t by_ns) const {
  const auto dump = dumps_.find(rank);
  if (dump == dumps_.end()) return false;
  const FlightEntry* const counterpart = Counterpart(of, entry, rank);
  if (counterpart != nullptr) return counterpart->scheduled_ns <= by_ns;
  if (entry.kind == FlightKind::kCollective) {
    const auto& scheduled = groups_.at(GroupId(of, entry)).scheduled;
    const auto found = scheduled.find(rank);
    return found != scheduled.end() && found->second >= entry.sequence;
  }
  const std::vector<FlightEntry>& all = dump->second.entries;
  const bool has_lost = !all.empty() && all.front().id > 0;
  return has_lost && all.front().scheduled_ns > entry.scheduled_ns;
}

bool JobHistory::HasDoneBefore(int rank, const FlightEntry& entry) const {
  const std::vector<FlightEntry>& all = dumps_.at(rank).entries;
  return std::any_of(all.begin(), all.end(), [&](const FlightEntry& each) {
    return each.id < entry.id && each.state == FlightState::kCompleted &&
           each.group == entry.group && AreAlike(each, entry);
  });
}

}  // namespace tandem
