#include "tools/hang_diagnosis/history.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/flight/dump_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Far more than a recorder's ring comes to.
constexpr uintmax_t kMostBytes = 64 << 20;

absl::StatusOr<FlightDump> ReadDump(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return absl::UnavailableError(error.message());
  if (size > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", size, " bytes, more than any dump"));
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::UnavailableError("cannot be read");
  TANDEM_ASSIGN_OR_RETURN(FlightDump dump, DecodeFlightDump(text.str()));
  const fs::path named = FlightDumpPath("", dump.rank);
  if (path.filename() != named.filename()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is the dump of rank ", dump.rank));
  }
  return dump;
}

bool IsNamedAsDump(const std::string& name) {
  return absl::StartsWith(name, "rank_") && absl::EndsWith(name, ".json");
}

absl::StatusOr<std::vector<fs::path>> DumpFiles(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator each(folder, error);
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    if (IsNamedAsDump(each->path().filename())) files.push_back(each->path());
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("folder ", folder, ": ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Keeps those of the job that wrote last.
void KeepLastJob(FoundDumps* found) {
  const auto last =
      std::max_element(found->dumps.begin(), found->dumps.end(),
                       [](const FlightDump& one, const FlightDump& other) {
                         return one.dumped_ns < other.dumped_ns;
                       });
  const std::string job = last->job;
  std::vector<FlightDump> kept;
  for (FlightDump& each : found->dumps) {
    if (each.job == job) {
      kept.push_back(std::move(each));
    } else {
      found->ignored.push_back(
          absl::StrCat("rank_", each.rank, ".json: of another job"));
    }
  }
  found->dumps = std::move(kept);
}

}  // namespace

absl::StatusOr<FoundDumps> ReadDumps(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<fs::path> files, DumpFiles(folder));
  FoundDumps found;
  for (const fs::path& each : files) {
    absl::StatusOr<FlightDump> dump = ReadDump(each);
    if (dump.ok()) {
      found.dumps.push_back(*std::move(dump));
    } else {
      found.ignored.push_back(absl::StrCat(each.filename().string(), ": ",
                                           dump.status().message()));
    }
  }
  if (found.dumps.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "folder ", folder, " has no rank_N.json that is a flight dump",
        found.ignored.empty() ? ""
                              : absl::StrCat(": ", found.ignored.front())));
  }
  KeepLastJob(&found);
  std::sort(found.dumps.begin(), found.dumps.end(),
            [](const FlightDump& one, const FlightDump& other) {
              return one.rank < other.rank;
            });
  return found;
}

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
