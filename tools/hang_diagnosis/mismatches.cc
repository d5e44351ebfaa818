#include "tools/hang_diagnosis/mismatches.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace tandem {
namespace {

using Fault = Verdict::Fault;

struct Mismatch {
  std::string group;  // id
  std::vector<AlikeRanks> parts;
  int64_t began_ns = 0;  // when the last of the ranks came to it
};

std::vector<AlikeRanks> SplitByOperation(const GroupHistory& group,
                                         int64_t sequence) {
  std::vector<AlikeRanks> parts;
  for (const auto& [rank, all] : group.collectives) {
    const auto found = all.find(sequence);
    if (found == all.end()) continue;
    const FlightEntry* const entry = found->second;
    auto part =
        std::find_if(parts.begin(), parts.end(), [&](const AlikeRanks& each) {
          return AreAlike(*each.entries.front(), *entry);
        });
    if (part == parts.end()) part = parts.insert(parts.end(), AlikeRanks());
    part->ranks.push_back(rank);
    part->entries.push_back(entry);
  }
  return parts;
}

int64_t LatestStart(const std::vector<AlikeRanks>& parts) {
  int64_t last = 0;
  for (const AlikeRanks& part : parts) {
    for (const FlightEntry* each : part.entries) {
      last = std::max(last, each->scheduled_ns);
    }
  }
  return last;
}

// The group's first.
std::optional<Mismatch> FirstInGroup(const std::string& id,
                                     const GroupHistory& group) {
  std::set<int64_t> sequences;
  for (const auto& [rank, all] : group.collectives) {
    for (const auto& [sequence, entry] : all) sequences.insert(sequence);
  }
  for (const int64_t sequence : sequences) {
    std::vector<AlikeRanks> parts = SplitByOperation(group, sequence);
    if (parts.size() < 2) continue;
    const int64_t began = LatestStart(parts);
    return Mismatch{id, std::move(parts), began};
  }
  return std::nullopt;
}

std::optional<Mismatch> FirstMismatch(const JobHistory& history) {
  std::optional<Mismatch> first;
  for (const auto& [id, group] : history.groups()) {
    std::optional<Mismatch> found = FirstInGroup(id, group);
    if (!found.has_value()) continue;
    if (!first.has_value() || found->began_ns < first->began_ns) first = found;
  }
  return first;
}

// Has the rank the like of it as another collective of the group?
bool HasElsewhere(const GroupHistory& group, int rank,
                  const FlightEntry& entry) {
  const auto& all = group.collectives.at(rank);
  return std::any_of(all.begin(), all.end(), [&](const auto& each) {
    return each.first != entry.sequence && AreAlike(*each.second, entry);
  });
}

Fault WrongPartFault(const GroupHistory& group, const AlikeRanks& right,
                     const AlikeRanks& wrong) {
  const FlightEntry& expected = *right.entries.front();
  const FlightEntry& given = *wrong.entries.front();
  const bool other_purpose =
      !expected.what.empty() && !given.what.empty() &&
      (expected.what != given.what || expected.index != given.index);
  if (expected.operation != given.operation || expected.peer != given.peer ||
      other_purpose || HasElsewhere(group, right.ranks.front(), given)) {
    return Fault::kOtherOrder;
  }
  return Fault::kOtherShape;
}

Verdict MismatchVerdict(const JobHistory& history, const Mismatch& mismatch) {
  const GroupHistory& group = history.groups().at(mismatch.group);
  const size_t right = RightRanks(history, mismatch.parts);
  const AlikeRanks& expected = mismatch.parts[right];
  Verdict verdict;
  const AlikeRanks* first = nullptr;
  for (size_t i = 0; i < mismatch.parts.size(); ++i) {
    if (i == right) continue;
    const AlikeRanks& part = mismatch.parts[i];
    if (first == nullptr || part.ranks.front() < first->ranks.front()) {
      first = &part;
    }
    verdict.culprits.insert(verdict.culprits.end(), part.ranks.begin(),
                            part.ranks.end());
  }
  std::sort(verdict.culprits.begin(), verdict.culprits.end());
  verdict.fault = WrongPartFault(group, expected, *first);
  verdict.waiting = expected.ranks;
  verdict.group = group.name;
  verdict.operation = *expected.entries.front();
  verdict.since_ns = verdict.operation.scheduled_ns;
  verdict.until_ns = history.dumps().at(expected.ranks.front()).dumped_ns;
  verdict.instead = *first->entries.front();
  verdict.instead_group = group.name;
  return verdict;
}

// For a message that a rank receives: what was sent, if its size is another.
std::optional<Verdict> OtherMessage(const JobHistory& history, int rank,
                                    const FlightEntry& entry) {
  if (entry.kind != FlightKind::kReceive) return std::nullopt;
  const FlightEntry* const sent = history.Counterpart(rank, entry, entry.peer);
  if (sent == nullptr ||
      (sent->sizes == entry.sizes && sent->dtype == entry.dtype)) {
    return std::nullopt;
  }
  Verdict verdict;
  verdict.fault = Fault::kOtherShape;
  verdict.culprits = {rank};
  verdict.waiting = {entry.peer};
  verdict.group = history.groups().at(history.GroupId(rank, entry)).name;
  verdict.operation = *sent;
  verdict.since_ns = sent->scheduled_ns;
  verdict.until_ns = history.dumps().at(entry.peer).dumped_ns;
  verdict.instead = entry;
  verdict.instead_group = verdict.group;
  return verdict;
}

std::optional<Verdict> FindOtherMessage(const JobHistory& history) {
  for (const auto& [rank, dump] : history.dumps()) {
    for (const FlightEntry& entry : dump.entries) {
      std::optional<Verdict> found = OtherMessage(history, rank, entry);
      if (found.has_value()) return found;
    }
  }
  return std::nullopt;
}

}  // namespace

size_t RightRanks(const JobHistory& history,
                  const std::vector<AlikeRanks>& parts) {
  const auto merit = [&](const AlikeRanks& part) {
    return std::make_tuple(
        history.HasDoneBefore(part.ranks.front(), *part.entries.front()),
        part.ranks.size(), -part.ranks.front());
  };
  const auto best =
      std::max_element(parts.begin(), parts.end(),
                       [&](const AlikeRanks& one, const AlikeRanks& other) {
                         return merit(one) < merit(other);
                       });
  return static_cast<size_t>(best - parts.begin());
}

std::optional<Verdict> FindMismatch(const JobHistory& history) {
  const std::optional<Mismatch> mismatch = FirstMismatch(history);
  if (!mismatch.has_value()) return FindOtherMessage(history);
  return MismatchVerdict(history, *mismatch);
}

}  // namespace tandem
