#include "core/flight/dump.h"

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// JSON fields of a flight dump: read from a file that anybody may have written,
// each with the type and range that it must have.

// An object. Every error is InvalidArgument and names the field, by its path
// ("entries[3].group").
class JsonFields {
 public:
  // `what` is what errors call the whole: "a flight dump".
  static absl::StatusOr<JsonFields> Parse(absl::string_view text,
                                          absl::string_view what);

  absl::StatusOr<std::string> Text(const char* key) const;
  // An integer of [0, 2^63).
  absl::StatusOr<int64_t> Count(const char* key) const;
  absl::StatusOr<int> Int(const char* key, int least,
                          int most = std::numeric_limits<int>::max()) const;
  // A list of counts, none greater than `most`.
  absl::StatusOr<std::vector<int64_t>> Numbers(
      const char* key,
      int64_t most = std::numeric_limits<int64_t>::max()) const;
  // A list of objects.
  absl::StatusOr<std::vector<JsonFields>> Objects(const char* key) const;

  // The error of a field that is not what it should be.
  absl::Status Wrong(const char* key, absl::string_view expected) const;

 private:
  using Json = nlohmann::json;

  JsonFields(Json object, std::string path)
      : object_(std::move(object)), path_(std::move(path)) {}

  const Json& At(const char* key) const;  // null: there is none

  Json object_;
  std::string path_;
};

// What it holds, if it is an integer of [least, most].
std::optional<int64_t> IntegerWithin(const nlohmann::json& json, int64_t least,
                                     int64_t most) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  const auto number = json.get<int64_t>();
  if (number < least || number > most) return std::nullopt;
  return number;
}

absl::StatusOr<JsonFields> JsonFields::Parse(absl::string_view text,
                                             absl::string_view what) {
  Json json = Json::parse(text.begin(), text.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (json.is_object()) return JsonFields(std::move(json), "");
  return absl::InvalidArgumentError(
      absl::StrCat("this is not ", what, ": expected a JSON object"));
}

absl::Status JsonFields::Wrong(const char* key,
                               absl::string_view expected) const {
  std::string given =
      At(key).is_null() && !object_.contains(key)
          ? "is missing"
          : absl::StrCat("is ", At(key).dump(-1, ' ', true,
                                             Json::error_handler_t::replace));
  constexpr size_t kMost = 100;
  if (given.size() > kMost) given = absl::StrCat(given.substr(0, kMost), "...");
  return absl::InvalidArgumentError(
      absl::StrCat("\"", path_, key, "\" ", given, ", expected ", expected));
}

const JsonFields::Json& JsonFields::At(const char* key) const {
  static const Json* const kNone = new Json();
  const auto found = object_.find(key);
  return found == object_.end() ? *kNone : *found;
}

absl::StatusOr<std::string> JsonFields::Text(const char* key) const {
  const Json& json = At(key);
  if (!json.is_string()) return Wrong(key, "text");
  return json.get<std::string>();
}

absl::StatusOr<int64_t> JsonFields::Count(const char* key) const {
  const std::optional<int64_t> number =
      IntegerWithin(At(key), 0, std::numeric_limits<int64_t>::max());
  if (!number.has_value()) return Wrong(key, "a number from 0");
  return *number;
}

absl::StatusOr<int> JsonFields::Int(const char* key, int least,
                                    int most) const {
  const std::optional<int64_t> number = IntegerWithin(At(key), least, most);
  if (!number.has_value()) {
    return Wrong(key, absl::StrCat("a number from ", least, " to ", most));
  }
  return static_cast<int>(*number);
}

absl::StatusOr<std::vector<int64_t>> JsonFields::Numbers(const char* key,
                                                         int64_t most) const {
  const Json& json = At(key);
  if (!json.is_array()) return Wrong(key, "a list of numbers");
  std::vector<int64_t> numbers;
  for (const Json& each : json) {
    const std::optional<int64_t> number = IntegerWithin(each, 0, most);
    if (!number.has_value()) {
      return Wrong(key, absl::StrCat("numbers from 0 to ", most));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<JsonFields>> JsonFields::Objects(
    const char* key) const {
  const Json& json = At(key);
  if (!json.is_array()) return Wrong(key, "a list of objects");
  std::vector<JsonFields> objects;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_object()) return Wrong(key, "a list of objects");
    objects.push_back(
        JsonFields(json[i], absl::StrCat(path_, key, "[", i, "].")));
  }
  return objects;
}

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
const char* EnumName(Enum value, const std::array<const char*, n>& names) {
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
          {"kind", EnumName(entry.kind, kKinds)},
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
          {"state", EnumName(entry.state, kStates)},
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
               {"trigger", EnumName(dump.trigger, kTriggers)},
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
