#include "core/replace/membership.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/text_fields.h"

namespace tandem {
namespace {

std::optional<Member> TakeMember(absl::string_view* text) {
  const std::optional<int> rank = TakeNumber(text);
  const std::optional<int> life = TakeNumber(text);
  const std::optional<int64_t> step = TakeInt64(text);
  const std::optional<int> has_next = TakeNumber(text);
  if (!rank || !life || !step || !has_next) return std::nullopt;
  return Member{*rank, *life, *step, *has_next != 0};
}

bool Has(const std::vector<Member>& members, const Member& process) {
  return absl::c_any_of(
      members, [&](const Member& each) { return IsSame(each, process); });
}

// One member's place in a replica, which is that of its rank.
int PlaceInReplica(const Member& member, int ranks_of_replica) {
  return member.rank % ranks_of_replica;
}

// The whole replicas that the members make, one behind the other: those that
// were launched so, and then any that have a rank for each place.
std::vector<Member> WholeReplicas(std::vector<Member> members,
                                  int ranks_of_replica) {
  absl::c_sort(members, [](const Member& a, const Member& b) {
    return a.rank < b.rank;
  });
  std::map<int, int> ranks_there;  // by launched replica
  for (const Member& each : members) {
    ++ranks_there[each.rank / ranks_of_replica];
  }
  std::vector<Member> whole;
  std::vector<std::vector<Member>> rest(static_cast<size_t>(ranks_of_replica));
  for (const Member& each : members) {
    if (ranks_there[each.rank / ranks_of_replica] == ranks_of_replica) {
      whole.push_back(each);
    } else {
      rest[static_cast<size_t>(PlaceInReplica(each, ranks_of_replica))]
          .push_back(each);
    }
  }
  const size_t more =
      absl::c_min_element(rest, [](const auto& a, const auto& b) {
        return a.size() < b.size();
      })->size();
  for (size_t i = 0; i < more; ++i) {
    for (const std::vector<Member>& of_place : rest) {
      whole.push_back(of_place[i]);
    }
  }
  return whole;
}

bool HasStateOf(const Member& member, int64_t step) {
  return member.step == step || (member.has_next && member.step + 1 == step);
}

}  // namespace

bool IsSame(const Member& a, const Member& b) {
  return a.rank == b.rank && a.life == b.life;
}

std::optional<int> Generation::PlaceOf(const Member& process) const {
  for (size_t i = 0; i < members.size(); ++i) {
    if (IsSame(members[i], process)) return static_cast<int>(i);
  }
  return std::nullopt;
}

int64_t Generation::Step() const {
  int64_t most = kNoState;
  for (const Member& each : members) most = std::max(most, each.step);
  return most;
}

std::optional<int> Generation::Source(int place) const {
  const int64_t step = Step();
  if (step == kNoState) return std::nullopt;
  const auto size = static_cast<int>(members.size());
  for (int i = place % ranks_of_replica; i < size; i += ranks_of_replica) {
    if (HasStateOf(members[static_cast<size_t>(i)], step)) return i;
  }
  return std::nullopt;
}

bool Generation::HasState() const {
  for (int place = 0; place < ranks_of_replica; ++place) {
    if (!Source(place)) return false;
  }
  return true;
}

std::vector<int> Generation::Ranks() const {
  std::vector<int> ranks;
  for (const Member& each : members) ranks.push_back(each.rank);
  return ranks;
}

Generation FirstGeneration(int ranks, int ranks_of_replica) {
  Generation first;
  first.ranks_of_replica = ranks_of_replica;
  for (int rank = 0; rank < ranks; ++rank) first.members.push_back({rank});
  return first;
}

bool IsDead(const Member& process, const Notices& notices) {
  return absl::c_any_of(notices.dead, [&](const Death& death) {
    return IsSame(death.process, process);
  });
}

std::vector<Member> Missing(const Generation& now, const Notices& notices) {
  std::vector<Member> missing;
  for (const Member& each : now.members) {
    if (Has(notices.ready, each) || IsDead(each, notices)) continue;
    missing.push_back(each);
  }
  return missing;
}

std::vector<Member> Newcomers(const Generation& now, const Notices& notices) {
  std::vector<Member> newcomers;
  for (const Member& each : notices.waiting) {
    if (Has(now.members, each) || IsDead(each, notices)) continue;
    if (!Has(newcomers, each)) newcomers.push_back(each);
  }
  return newcomers;
}

bool HasNewReplica(const Generation& now, const Notices& notices) {
  return !WholeReplicas(Newcomers(now, notices), now.ranks_of_replica).empty();
}

bool HasLivingReplica(const Generation& now, const Notices& notices) {
  std::vector<Member> living;
  for (const Member& each : now.members) {
    if (!IsDead(each, notices)) living.push_back(each);
  }
  return !WholeReplicas(std::move(living), now.ranks_of_replica).empty();
}

Generation NextGeneration(const Generation& now, const Notices& notices) {
  std::vector<Member> ready;
  for (const Member& each : notices.ready) {
    if (now.PlaceOf(each) && !IsDead(each, notices)) ready.push_back(each);
  }
  std::vector<Member> there = Newcomers(now, notices);
  there.insert(there.end(), ready.begin(), ready.end());
  Generation next;
  next.number = now.number + 1;
  next.ranks_of_replica = now.ranks_of_replica;
  next.members = WholeReplicas(std::move(there), now.ranks_of_replica);
  if (next.HasState()) return next;
  // A newcomer without state took the place of a member that has some.
  Generation without = next;
  without.members = WholeReplicas(std::move(ready), now.ranks_of_replica);
  return without.HasState() ? without : next;
}

std::string Encode(const Member& member) {
  std::string text;
  AppendNumber(member.rank, &text);
  AppendNumber(member.life, &text);
  AppendNumber(member.step, &text);
  AppendNumber(member.has_next ? 1 : 0, &text);
  return text;
}

std::string Encode(const Death& death) {
  std::string text = Encode(death.process);
  AppendField(death.how, &text);
  return text;
}

std::string Encode(const Generation& generation) {
  std::string text;
  AppendNumber(generation.number, &text);
  AppendNumber(generation.ranks_of_replica, &text);
  for (const Member& each : generation.members) text += Encode(each);
  return text;
}

std::vector<Member> DecodeMembers(absl::string_view list) {
  std::vector<Member> members;
  while (const std::optional<Member> member = TakeMember(&list)) {
    members.push_back(*member);
  }
  return members;
}

std::vector<Death> DecodeDeaths(absl::string_view list) {
  std::vector<Death> deaths;
  while (const std::optional<Member> process = TakeMember(&list)) {
    const auto how = TakeField(&list);
    if (!how) break;
    deaths.push_back({*process, std::string(*how)});
  }
  return deaths;
}

std::optional<Generation> DecodeGeneration(absl::string_view text) {
  const std::optional<int> number = TakeNumber(&text);
  const std::optional<int> ranks_of_replica = TakeNumber(&text);
  if (!number || ranks_of_replica.value_or(0) < 1) return std::nullopt;
  return Generation{*number, *ranks_of_replica, DecodeMembers(text)};
}

namespace {

constexpr char kPrefix[] = "replace";
constexpr char kLatest[] = "latest";
constexpr char kWaiting[] = "waiting";
constexpr char kDead[] = "dead";
constexpr char kFinished[] = "finished";

std::string ReadyKey(const Generation& now) {
  return absl::StrCat("ready/", now.number);
}

}  // namespace

MembershipStore::MembershipStore(StorePtr job)
    : store_(WithPrefix(std::move(job), kPrefix)) {}

void MembershipStore::Append(const std::string& list, const std::string& text) {
  store_->append(list, std::vector<uint8_t>(text.begin(), text.end()));
}

std::optional<Generation> MembershipStore::Latest() {
  return DecodeGeneration(TextAt(*store_, kLatest));
}

Generation MembershipStore::Follow(const Generation* now,
                                   const Generation& next) {
  const std::string before = now == nullptr ? "" : Encode(*now);
  return DecodeGeneration(store_->compareSet(kLatest, before, Encode(next)))
      .value_or(next);
}

void MembershipStore::NoteReady(const Generation& now, const Member& member) {
  Append(ReadyKey(now), Encode(member));
}

void MembershipStore::NoteWaiting(const Member& process) {
  Append(kWaiting, Encode(process));
}

void MembershipStore::NoteDeath(const Death& death) {
  Append(kDead, Encode(death));
}

Notices MembershipStore::Read(const Generation& now) {
  return {DecodeMembers(TextAt(*store_, ReadyKey(now))),
          DecodeMembers(TextAt(*store_, kWaiting)),
          DecodeDeaths(TextAt(*store_, kDead))};
}

void MembershipStore::NoteFinished() {
  store_->set(kFinished, std::string("1"));
}

bool MembershipStore::IsFinished() { return store_->check({kFinished}); }

std::string PrefixOfGeneration(const std::string& job_prefix, int number) {
  if (number == 0) return job_prefix;
  return absl::StrCat(job_prefix, "generation_", number, "/");
}

}  // namespace tandem
