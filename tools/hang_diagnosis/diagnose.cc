#include "tools/hang_diagnosis/diagnose.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tools/hang_diagnosis/mismatches.h"

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

std::vector<RankWait> FindWaits(const JobHistory& history) {
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

namespace {

using Fault = Verdict::Fault;

bool FailedByItself(const FlightDump& dump) {
  return dump.trigger == FlightTrigger::kGaveUp ||
         dump.trigger == FlightTrigger::kDied;
}

// The first rank that did, unless another one's wait had run out before.
const FlightDump* FindFailed(const JobHistory& history) {
  const FlightDump* first = nullptr;
  for (const auto& [rank, dump] : history.dumps()) {
    if (dump.trigger == FlightTrigger::kSignal) continue;
    if (first == nullptr || dump.dumped_ns < first->dumped_ns) first = &dump;
  }
  return first != nullptr && FailedByItself(*first) ? first : nullptr;
}

std::vector<int> WaitingRanks(const std::vector<RankWait>& waits) {
  std::set<int> ranks;
  for (const RankWait& each : waits) ranks.insert(each.rank);
  return {ranks.begin(), ranks.end()};
}

// The wait that began first among those for one of `ranks`; null: there is
// none.
const RankWait* FirstFor(const std::vector<RankWait>& waits,
                         const std::set<int>& ranks) {
  const RankWait* first = nullptr;
  for (const RankWait& each : waits) {
    const bool is_for =
        std::any_of(each.missing.begin(), each.missing.end(),
                    [&](int rank) { return ranks.count(rank) > 0; });
    if (!is_for) continue;
    if (first == nullptr || each.since_ns() < first->since_ns()) {
      first = &each;
    }
  }
  return first;
}

void SetOperation(const JobHistory& history, const RankWait& wait,
                  Verdict* verdict) {
  const std::string& id = history.GroupId(wait.rank, *wait.entry);
  verdict->group = history.groups().at(id).name;
  verdict->operation = *wait.entry;
  verdict->since_ns = wait.since_ns();
  verdict->until_ns = history.dumps().at(wait.rank).dumped_ns;
}

// What the rank was doing when it was dumped: what has not ended, and began
// last; else what ended last.
void SetInstead(const JobHistory& history, int rank, Verdict* verdict) {
  const auto dump = history.dumps().find(rank);
  if (dump == history.dumps().end()) return;
  verdict->reason = dump->second.reason;
  const FlightEntry* last = nullptr;
  for (const FlightEntry& each : dump->second.entries) {
    const bool has_ended = each.state == FlightState::kCompleted;
    const bool last_has =
        last == nullptr || last->state == FlightState::kCompleted;
    if (!has_ended || last_has) last = &each;
  }
  if (last == nullptr) return;
  verdict->instead = *last;
  if (last->group < 0) return;
  verdict->instead_group =
      history.groups().at(history.GroupId(rank, *last)).name;
}

Fault CulpritFault(const JobHistory& history, const RankWait& wait,
                   int culprit) {
  if (history.dumps().count(culprit) == 0) return Fault::kAbsent;
  const bool has_come =
      history.Counterpart(wait.rank, *wait.entry, culprit) != nullptr;
  return has_come && !wait.has_started ? Fault::kLate : Fault::kBehind;
}

bool NothingWasRecorded(const JobHistory& history) {
  const auto& dumps = history.dumps();
  return !dumps.empty() &&
         std::all_of(dumps.begin(), dumps.end(), [](const auto& each) {
           return each.second.entries.empty();
         });
}

Verdict BlameFailed(const JobHistory& history, const FlightDump& failed,
                    const std::vector<RankWait>& waits) {
  Verdict verdict;
  verdict.fault = Fault::kFailed;
  verdict.culprits = {failed.rank};
  verdict.waiting = WaitingRanks(waits);
  SetInstead(history, failed.rank, &verdict);
  const RankWait* const wait = FirstFor(waits, {failed.rank});
  if (wait != nullptr) SetOperation(history, *wait, &verdict);
  return verdict;
}

Verdict BlameMissing(const JobHistory& history, const std::set<int>& causes,
                     const std::vector<RankWait>& waits) {
  Verdict verdict;
  const RankWait& wait = *FirstFor(waits, causes);
  verdict.culprits = {causes.begin(), causes.end()};
  verdict.waiting = WaitingRanks(waits);
  const int first =
      *std::find_if(wait.missing.begin(), wait.missing.end(),
                    [&](int rank) { return causes.count(rank) > 0; });
  verdict.fault = CulpritFault(history, wait, first);
  verdict.has_started = wait.has_started;
  SetOperation(history, wait, &verdict);
  SetInstead(history, first, &verdict);
  return verdict;
}

// Each rank's first wait, those in the same operation together.
std::vector<AlikeRanks> SplitByWait(const JobHistory& history,
                                    const std::vector<RankWait>& waits) {
  std::vector<AlikeRanks> parts;
  std::set<int> seen;
  for (const RankWait& wait : waits) {
    if (!seen.insert(wait.rank).second) continue;
    const auto joins = [&](const AlikeRanks& part) {
      const int of = part.ranks.front();
      return wait.entry->kind == FlightKind::kCollective &&
             history.GroupId(of, *part.entries.front()) ==
                 history.GroupId(wait.rank, *wait.entry) &&
             part.entries.front()->sequence == wait.entry->sequence;
    };
    auto part = std::find_if(parts.begin(), parts.end(), joins);
    if (part == parts.end()) part = parts.insert(parts.end(), AlikeRanks());
    part->ranks.push_back(wait.rank);
    part->entries.push_back(wait.entry);
  }
  return parts;
}

// Everybody waits. The culprits are the worst part: without it the others would
// be the ones to choose from.
Verdict BlameCircle(const JobHistory& history,
                    const std::vector<RankWait>& waits) {
  std::vector<AlikeRanks> parts = SplitByWait(history, waits);
  while (parts.size() > 1) {
    const size_t right = RightRanks(history, parts);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(right));
  }
  Verdict verdict;
  verdict.fault = Fault::kOtherGroup;
  verdict.culprits = parts.front().ranks;
  const std::set<int> culprits(verdict.culprits.begin(),
                               verdict.culprits.end());
  for (int rank : WaitingRanks(waits)) {
    if (culprits.count(rank) == 0) verdict.waiting.push_back(rank);
  }
  std::vector<RankWait> others;
  for (const RankWait& each : waits) {
    if (culprits.count(each.rank) == 0) others.push_back(each);
  }
  const RankWait* wait = FirstFor(others, culprits);
  if (wait == nullptr) wait = &waits.front();
  SetOperation(history, *wait, &verdict);
  const int first = parts.front().ranks.front();
  verdict.instead = *parts.front().entries.front();
  verdict.instead_group =
      history.groups().at(history.GroupId(first, *verdict.instead)).name;
  return verdict;
}

}  // namespace

Verdict Diagnose(const JobHistory& history) {
  const std::optional<Verdict> mismatch = FindMismatch(history);
  if (mismatch.has_value()) return *mismatch;
  const std::vector<RankWait> waits = FindWaits(history);
  const FlightDump* const failed = FindFailed(history);
  if (failed != nullptr) return BlameFailed(history, *failed, waits);
  if (waits.empty()) {
    Verdict verdict;
    if (NothingWasRecorded(history)) verdict.fault = Fault::kUnknown;
    return verdict;
  }
  const std::set<int> causes = RanksAtCause(waits);
  return causes.empty() ? BlameCircle(history, waits)
                        : BlameMissing(history, causes, waits);
}

}  // namespace tandem
