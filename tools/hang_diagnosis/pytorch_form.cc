#include "tools/hang_diagnosis/pytorch_form.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// The opcodes of pickletools.
constexpr char kProtocol[] = "\x80\x02";
constexpr char kStop = '.';
constexpr char kNone = 'N';
constexpr char kTrue = '\x88';
constexpr char kFalse = '\x89';
constexpr char kInt = 'J';      // 4 bytes, the lowest first
constexpr char kLong = '\x8a';  // how many bytes, the lowest first
constexpr char kFloat = 'G';    // 8 bytes, the highest first
constexpr char kText = 'X';     // 4 bytes of length
constexpr char kList = ']';
constexpr char kDict = '}';
constexpr char kMark = '(';
constexpr char kAppends = 'e';
constexpr char kSetItems = 'u';

void AppendBytes(uint64_t number, int bytes, std::string* pickle) {
  for (int i = 0; i < bytes; ++i) {
    pickle->push_back(static_cast<char>(number >> (8 * i)));
  }
}

void AppendInteger(int64_t number, std::string* pickle) {
  if (number >= std::numeric_limits<int32_t>::min() &&
      number <= std::numeric_limits<int32_t>::max()) {
    pickle->push_back(kInt);
    AppendBytes(static_cast<uint64_t>(number), 4, pickle);
    return;
  }
  pickle->push_back(kLong);
  pickle->push_back(8);
  AppendBytes(static_cast<uint64_t>(number), 8, pickle);
}

void AppendFloat(double number, std::string* pickle) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  pickle->push_back(kFloat);
  for (int i = 7; i >= 0; --i) {
    pickle->push_back(static_cast<char>(bits >> (8 * i)));
  }
}

void AppendText(const std::string& text, std::string* pickle) {
  pickle->push_back(kText);
  AppendBytes(text.size(), 4, pickle);
  pickle->append(text);
}

void Append(const Json& value, std::string* pickle);

void AppendList(const Json& list, std::string* pickle) {
  pickle->push_back(kList);
  pickle->push_back(kMark);
  for (const Json& each : list) Append(each, pickle);
  pickle->push_back(kAppends);
}

void AppendDict(const Json& dict, std::string* pickle) {
  pickle->push_back(kDict);
  pickle->push_back(kMark);
  for (const auto& [key, value] : dict.items()) {
    AppendText(key, pickle);
    Append(value, pickle);
  }
  pickle->push_back(kSetItems);
}

void Append(const Json& value, std::string* pickle) {
  if (value.is_null()) {
    pickle->push_back(kNone);
  } else if (value.is_boolean()) {
    pickle->push_back(value.get<bool>() ? kTrue : kFalse);
  } else if (value.is_number_integer()) {
    AppendInteger(value.get<int64_t>(), pickle);
  } else if (value.is_number()) {
    AppendFloat(value.get<double>(), pickle);
  } else if (value.is_string()) {
    AppendText(value.get<std::string>(), pickle);
  } else if (value.is_array()) {
    AppendList(value, pickle);
  } else {
    AppendDict(value, pickle);
  }
}

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// When the first rank gave up.
int64_t FirstGivingUp(const JobHistory& history) {
  int64_t end = kNever;
  for (const auto& [rank, dump] : history.dumps()) {
    if (dump.trigger == FlightTrigger::kSignal) continue;
    end = std::min(end, dump.dumped_ns);
  }
  return end;
}

std::vector<int> OtherMembers(const JobHistory& history, int rank,
                              const FlightEntry& entry) {
  if (entry.kind != FlightKind::kCollective) return {entry.peer};
  return history.groups().at(history.GroupId(rank, entry)).ranks;
}

// Has another rank's ring lost its part?
bool IsHalfLost(const JobHistory& history, int rank, const FlightEntry& entry) {
  const std::vector<int> others = OtherMembers(history, rank, entry);
  return std::any_of(others.begin(), others.end(), [&](int other) {
    return history.HadJoined(rank, entry, other, kNever) &&
           history.Counterpart(rank, entry, other) == nullptr;
  });
}

bool IsShown(const JobHistory& history, int rank, const FlightEntry& entry,
             int64_t end) {
  return entry.kind != FlightKind::kAction && entry.scheduled_ns <= end &&
         (entry.kind == FlightKind::kCollective || entry.sequence > 0) &&
         !IsHalfLost(history, rank, entry);
}

// Messages of one group from one rank to another.
using Lane = std::tuple<std::string, int, int>;
// Which of them: tag, and number under that tag.
using MessageKey = std::pair<int, int64_t>;

Lane EntryLane(const JobHistory& history, int rank, const FlightEntry& entry) {
  const std::string& id = history.GroupId(rank, entry);
  return entry.kind == FlightKind::kSend ? Lane(id, rank, entry.peer)
                                         : Lane(id, entry.peer, rank);
}

// Numbers of messages, from 1, in the order in which either end was started.
using MessageNumbers = std::map<Lane, std::map<MessageKey, int64_t>>;

MessageNumbers NumberMessages(const JobHistory& history, int64_t end) {
  MessageNumbers began;
  for (const auto& [rank, dump] : history.dumps()) {
    for (const FlightEntry& each : dump.entries) {
      if (each.kind == FlightKind::kCollective) continue;
      if (!IsShown(history, rank, each, end)) continue;
      auto& lane = began[EntryLane(history, rank, each)];
      const MessageKey key(each.tag, each.sequence);
      const auto [at, is_new] = lane.emplace(key, each.scheduled_ns);
      if (!is_new) at->second = std::min(at->second, each.scheduled_ns);
    }
  }
  for (auto& [lane, keys] : began) {
    std::vector<std::pair<int64_t, MessageKey>> order;
    for (const auto& [key, when] : keys) order.emplace_back(when, key);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) {
      keys[order[i].second] = static_cast<int64_t>(i) + 1;
    }
  }
  return began;
}

const char* StateName(const FlightEntry& entry) {
  switch (entry.state) {
    case FlightState::kScheduled:
      return "scheduled";
    case FlightState::kStarted:
      return "started";
    case FlightState::kCompleted:
      return "completed";
  }
  return "";
}

// One group as entries name it, and as pg_config has it.
struct NamedGroup {
  std::string id;
  std::string name;
  std::vector<int> ranks;
};

NamedGroup EntryGroup(const JobHistory& history, int rank,
                      const FlightEntry& entry) {
  const std::string& id = history.GroupId(rank, entry);
  const GroupHistory& group = history.groups().at(id);
  if (entry.kind == FlightKind::kCollective)
    return {id, group.name, group.ranks};
  const auto [of, from, to] = EntryLane(history, rank, entry);
  const std::string lane = absl::StrCat(" ", from, "->", to);
  return {absl::StrCat(id, lane),
          absl::StrCat(group.name, lane),
          {std::min(from, to), std::max(from, to)}};
}

// "nccl:all_reduce", "nccl:send 0->1": ranks count within the group of two.
std::string ProfilingName(int rank, const FlightEntry& entry) {
  const int me = rank < entry.peer ? 0 : 1;
  if (entry.kind == FlightKind::kSend) {
    return absl::StrCat("nccl:send ", me, "->", 1 - me);
  }
  if (entry.kind == FlightKind::kReceive) {
    return absl::StrCat("nccl:recv ", me, "<-", 1 - me);
  }
  // ProcessGroupNCCL's name for it.
  if (entry.operation == "barrier") return "nccl:all_reduce_barrier";
  std::string name = entry.operation;
  std::replace(name.begin(), name.end(), '-', '_');
  return absl::StrCat("nccl:", name);
}

void SetTensors(const FlightEntry& entry, size_t ranks, Json* json) {
  // A barrier is an all-reduce of one number there.
  const std::vector<int64_t> sizes =
      entry.dtype.empty() ? std::vector<int64_t>{1} : entry.sizes;
  const std::string dtype = entry.dtype.empty() ? "Float" : entry.dtype;
  // Entries have the sizes of one rank's part.
  std::vector<int64_t> input = sizes, output = sizes;
  const auto parts = static_cast<int64_t>(ranks);
  if (entry.operation == "all-gather") output.insert(output.begin(), parts);
  if (entry.operation == "reduce-scatter") input.insert(input.begin(), parts);
  (*json)["input_sizes"] = Json::array({input});
  (*json)["input_dtypes"] = Json::array({dtype});
  (*json)["output_sizes"] = Json::array({output});
  (*json)["output_dtypes"] = Json::array({dtype});
}

Json TimeOrNull(int64_t ns) { return ns == 0 ? Json() : Json(ns); }

Json PyTorchEntry(int rank, const FlightEntry& entry, const NamedGroup& group,
                  int64_t number, int64_t record) {
  const bool is_message = entry.kind != FlightKind::kCollective;
  Json json = {{"record_id", record},
               {"pg_id", entry.group},
               {"process_group", Json::array({group.id, group.name})},
               {"collective_seq_id", number},
               {"p2p_seq_id", is_message ? number : 0},
               {"op_id", record},
               {"profiling_name", ProfilingName(rank, entry)},
               {"time_created_ns", entry.scheduled_ns}};
  SetTensors(entry, group.ranks.size(), &json);
  json["state"] = StateName(entry);
  json["time_discovered_started_ns"] = TimeOrNull(entry.started_ns);
  json["time_discovered_completed_ns"] = TimeOrNull(entry.completed_ns);
  json["retired"] = entry.state == FlightState::kCompleted;
  json["timeout_ms"] = 0;
  json["is_p2p"] = is_message;
  json["frames"] = Json::array();
  return json;
}

}  // namespace

std::string Pickled(const Json& value) {
  std::string pickle = kProtocol;
  Append(value, &pickle);
  pickle.push_back(kStop);
  return pickle;
}

Json PyTorchForm(const JobHistory& history, int rank) {
  const int64_t end = FirstGivingUp(history);
  MessageNumbers numbers = NumberMessages(history, end);
  Json form = {{"version", "2.10"},
               {"pg_config", Json::object()},
               {"pg_status", Json::object()},
               {"entries", Json::array()}};
  int64_t record = 0;
  for (const FlightEntry& each : history.dumps().at(rank).entries) {
    if (!IsShown(history, rank, each, end)) continue;
    const NamedGroup group = EntryGroup(history, rank, each);
    form["pg_config"][group.id] = {
        {"name", group.id},
        {"desc", group.name},
        {"ranks", absl::StrCat("[", absl::StrJoin(group.ranks, ", "), "]")}};
    const int64_t number = each.kind == FlightKind::kCollective
                               ? each.sequence
                               : numbers[EntryLane(history, rank, each)]
                                        [{each.tag, each.sequence}];
    form["entries"].push_back(
        PyTorchEntry(rank, each, group, number, record++));
  }
  return form;
}

}  // namespace tandem
