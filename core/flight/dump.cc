#include "core/flight/dump.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/flight/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr int kMostRanks = 1000000;

constexpr std::array<const char*, 4> kKinds = {"collective", "send", "receive",
                                               "action"};
constexpr std::array<const char*, 3> kStates = {"scheduled", "started",
                                                "completed"};
constexpr std::array<const char*, 5> kTriggers = {"timeout", "failed",
                                                  "gave up", "signal", "died"};

template <typename Enum, size_t n>
const char* NameOf(Enum value, const std::array<const char*, n>& names) {
  return names[static_cast<size_t>(value)];
}

template <typename Enum, size_t n>
absl::Status Read(const JsonFields& fields, const char* key,
                  const std::array<const char*, n>& names, Enum* value) {
  TANDEM_ASSIGN_OR_RETURN(const std::string name, fields.Text(key));
  for (size_t i = 0; i < n; ++i) {
    if (name != names[i]) continue;
    *value = static_cast<Enum>(i);
    return absl::OkStatus();
  }
  return fields.Wrong(key, absl::StrCat("one of ", absl::StrJoin(names, ", ")));
}

std::string PurposeText(const FlightEntry& entry) {
  std::string text = entry.what;
  if (entry.index >= 0) absl::StrAppend(&text, " ", entry.index);
  if (entry.microbatch >= 0) {
    absl::StrAppend(&text, " of microbatch ", entry.microbatch);
  }
  if (entry.stage >= 0) absl::StrAppend(&text, ", stage ", entry.stage);
  if (entry.step > 0 && !text.empty()) {
    absl::StrAppend(&text, ", step ", entry.step);
  }
  return text;
}

Json ToJson(const FlightGroupFacts& group) {
  return {{"name", group.name},
          {"id", group.id},
          {"ranks", group.ranks},
          {"scheduled", group.scheduled}};
}

Json ToJson(const FlightEntry& entry) {
  return {{"id", entry.id},
          {"kind", NameOf(entry.kind, kKinds)},
          {"operation", entry.operation},
          {"group", entry.group},
          {"sequence", entry.sequence},
          {"peer", entry.peer},
          {"tag", entry.tag},
          {"dtype", entry.dtype},
          {"sizes", entry.sizes},
          {"what", entry.what},
          {"index", entry.index},
          {"stage", entry.stage},
          {"microbatch", entry.microbatch},
          {"step", entry.step},
          {"state", NameOf(entry.state, kStates)},
          {"scheduled_ns", entry.scheduled_ns},
          {"started_ns", entry.started_ns},
          {"awaited_ns", entry.awaited_ns},
          {"completed_ns", entry.completed_ns}};
}

absl::StatusOr<FlightGroupFacts> GroupFrom(const JsonFields& fields,
                                           int world_size) {
  FlightGroupFacts group;
  TANDEM_ASSIGN_OR_RETURN(group.name, fields.Text("name"));
  TANDEM_ASSIGN_OR_RETURN(group.id, fields.Text("id"));
  TANDEM_ASSIGN_OR_RETURN(group.scheduled, fields.Count("scheduled"));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks,
                          fields.Numbers("ranks", world_size - 1));
  group.ranks.assign(ranks.begin(), ranks.end());
  return group;
}

absl::Status ReadPurpose(const JsonFields& fields, FlightEntry* entry) {
  TANDEM_ASSIGN_OR_RETURN(entry->what, fields.Text("what"));
  TANDEM_ASSIGN_OR_RETURN(entry->index, fields.Int("index", -1));
  TANDEM_ASSIGN_OR_RETURN(entry->stage, fields.Int("stage", -1));
  TANDEM_ASSIGN_OR_RETURN(entry->microbatch, fields.Int("microbatch", -1));
  TANDEM_ASSIGN_OR_RETURN(entry->step, fields.Count("step"));
  return absl::OkStatus();
}

absl::Status ReadTimes(const JsonFields& fields, FlightEntry* entry) {
  TANDEM_RETURN_IF_ERROR(Read(fields, "state", kStates, &entry->state));
  TANDEM_ASSIGN_OR_RETURN(entry->scheduled_ns, fields.Count("scheduled_ns"));
  TANDEM_ASSIGN_OR_RETURN(entry->started_ns, fields.Count("started_ns"));
  TANDEM_ASSIGN_OR_RETURN(entry->awaited_ns, fields.Count("awaited_ns"));
  TANDEM_ASSIGN_OR_RETURN(entry->completed_ns, fields.Count("completed_ns"));
  return absl::OkStatus();
}

absl::StatusOr<FlightEntry> EntryFrom(const JsonFields& fields,
                                      const FlightDump& dump) {
  FlightEntry entry;
  TANDEM_ASSIGN_OR_RETURN(entry.id, fields.Count("id"));
  TANDEM_RETURN_IF_ERROR(Read(fields, "kind", kKinds, &entry.kind));
  TANDEM_ASSIGN_OR_RETURN(entry.operation, fields.Text("operation"));
  TANDEM_ASSIGN_OR_RETURN(
      entry.group,
      fields.Int("group", -1, static_cast<int>(dump.groups.size()) - 1));
  if (entry.group < 0 && entry.kind != FlightKind::kAction) {
    return fields.Wrong("group", "a group: only an action has none");
  }
  TANDEM_ASSIGN_OR_RETURN(entry.sequence, fields.Count("sequence"));
  const bool is_message =
      entry.kind == FlightKind::kSend || entry.kind == FlightKind::kReceive;
  TANDEM_ASSIGN_OR_RETURN(
      entry.peer, fields.Int("peer", is_message ? 0 : -1, dump.world_size - 1));
  TANDEM_ASSIGN_OR_RETURN(entry.tag, fields.Int("tag", 0));
  TANDEM_ASSIGN_OR_RETURN(entry.dtype, fields.Text("dtype"));
  TANDEM_ASSIGN_OR_RETURN(entry.sizes, fields.Numbers("sizes"));
  TANDEM_RETURN_IF_ERROR(ReadPurpose(fields, &entry));
  TANDEM_RETURN_IF_ERROR(ReadTimes(fields, &entry));
  return entry;
}

absl::Status ReadHead(const JsonFields& fields, FlightDump* dump) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t version, fields.Count("version"));
  if (version != kVersion) {
    return fields.Wrong("version", absl::StrCat(kVersion));
  }
  TANDEM_ASSIGN_OR_RETURN(dump->world_size,
                          fields.Int("world_size", 1, kMostRanks));
  TANDEM_ASSIGN_OR_RETURN(dump->rank,
                          fields.Int("rank", 0, dump->world_size - 1));
  TANDEM_ASSIGN_OR_RETURN(dump->job, fields.Text("job"));
  TANDEM_ASSIGN_OR_RETURN(dump->host, fields.Text("host"));
  TANDEM_ASSIGN_OR_RETURN(dump->pid, fields.Count("pid"));
  TANDEM_RETURN_IF_ERROR(Read(fields, "trigger", kTriggers, &dump->trigger));
  TANDEM_ASSIGN_OR_RETURN(dump->reason, fields.Text("reason"));
  TANDEM_ASSIGN_OR_RETURN(dump->dumped_ns, fields.Count("dumped_ns"));
  return absl::OkStatus();
}

}  // namespace

std::string FlightEntry::ToString() const {
  if (kind == FlightKind::kAction) {
    return absl::StrCat(operation, " of microbatch ", microbatch, " in stage ",
                        stage);
  }
  std::string text = operation;
  if (kind == FlightKind::kSend) absl::StrAppend(&text, " to rank ", peer);
  if (kind == FlightKind::kReceive) {
    absl::StrAppend(&text, " from rank ", peer);
  }
  if (kind == FlightKind::kCollective) absl::StrAppend(&text, " #", sequence);
  const std::string purpose = PurposeText(*this);
  if (!purpose.empty()) absl::StrAppend(&text, " (", purpose, ")");
  if (dtype.empty()) return text;
  return absl::StrCat(text, " of ", dtype, " [", absl::StrJoin(sizes, ", "),
                      "]");
}

std::string EncodeFlightDump(const FlightDump& dump) {
  Json json = {{"version", kVersion},
               {"rank", dump.rank},
               {"world_size", dump.world_size},
               {"job", dump.job},
               {"host", dump.host},
               {"pid", dump.pid},
               {"trigger", NameOf(dump.trigger, kTriggers)},
               {"reason", dump.reason},
               {"dumped_ns", dump.dumped_ns},
               {"groups", Json::array()},
               {"entries", Json::array()}};
  for (const auto& each : dump.groups) json["groups"].push_back(ToJson(each));
  for (const auto& each : dump.entries) json["entries"].push_back(ToJson(each));
  // A reason may hold any bytes.
  return json.dump(/*indent=*/1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

absl::StatusOr<FlightDump> DecodeFlightDump(absl::string_view text) {
  TANDEM_ASSIGN_OR_RETURN(const JsonFields fields,
                          JsonFields::Parse(text, "a flight dump"));
  FlightDump dump;
  TANDEM_RETURN_IF_ERROR(ReadHead(fields, &dump));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<JsonFields> groups,
                          fields.Objects("groups"));
  for (const JsonFields& each : groups) {
    TANDEM_ASSIGN_OR_RETURN(FlightGroupFacts group,
                            GroupFrom(each, dump.world_size));
    dump.groups.push_back(std::move(group));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<JsonFields> entries,
                          fields.Objects("entries"));
  for (const JsonFields& each : entries) {
    TANDEM_ASSIGN_OR_RETURN(FlightEntry entry, EntryFrom(each, dump));
    dump.entries.push_back(std::move(entry));
  }
  return dump;
}

}  // namespace tandem
