#include "core/instrument/trace_file.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Events = std::vector<const TraceEvent*>;

constexpr char kEvents[] = "traceEvents";
constexpr char kOther[] = "otherData";
constexpr char kRanks[] = "ranks";
// Viewers match the ends of a flow by name, category and id.
constexpr char kMessage[] = "message";

// The longer of two that begin together comes first: it holds the other.
bool Before(const TraceEvent* a, const TraceEvent* b) {
  if (a->start != b->start) return a->start < b->start;
  return a->end > b->end;
}

// A row, filled in the order of Before.
class Row {
 public:
  // Takes the event if it lies beside or inside what is there.
  bool Take(const TraceEvent* event) {
    while (!open_.empty() && open_.back()->end <= event->start) {
      open_.pop_back();
    }
    if (!open_.empty() && open_.back()->end < event->end) return false;
    open_.push_back(event);
    events_.push_back(event);
    return true;
  }

  const Events& events() const { return events_; }

 private:
  Events open_;  // each inside the one before it
  Events events_;
};

// `events` in the order of Before.
std::vector<Row> MakeRows(const Events& events) {
  std::vector<Row> rows;
  for (const TraceEvent* event : events) {
    const bool taken = std::any_of(rows.begin(), rows.end(),
                                   [&](Row& row) { return row.Take(event); });
    if (!taken) rows.emplace_back().Take(event);
  }
  return rows;
}

double Microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

double Microseconds(TraceEvent::Clock::time_point time) {
  return Microseconds(time.time_since_epoch());
}

// Where a flow leaves a slice, which holds its beginning and not its end.
double LeaveTime(const TraceEvent& event) {
  const std::chrono::nanoseconds length = event.end - event.start;
  return Microseconds(event.end -
                      std::min(length / 2, std::chrono::nanoseconds(1000)));
}

class RankWriter {
 public:
  explicit RankWriter(int rank) : rank_(rank) {}

  void AddMetadata(int thread, const char* what, Json args) {
    json_.push_back({{"ph", "M"},
                     {"pid", rank_},
                     {"tid", thread},
                     {"name", what},
                     {"args", std::move(args)}});
  }

  void AddCounter(const TraceEvent& sample) {
    Json json = Base(sample.name, "counter", 0, Microseconds(sample.start));
    json["ph"] = "C";
    for (const auto& [series, value] : sample.values) {
      json["args"][series] = value;
    }
    json_.push_back(std::move(json));
  }

  // With the ends of flows behind it: viewers bind them to the slice that they
  // have seen last.
  void AddSlice(const TraceEvent& event, int thread) {
    Json json =
        Base(event.name, event.category.empty() ? event.track : event.category,
             thread, Microseconds(event.start));
    const bool has_flows = !event.sends.empty() || !event.receives.empty();
    if (event.end > event.start || has_flows) {
      json["ph"] = "X";
      json["dur"] = Microseconds(event.end - event.start);
    } else {
      json["ph"] = "i";
      json["s"] = "t";  // as wide as its thread
    }
    for (const auto& [key, value] : event.args) json["args"][key] = value;
    json_.push_back(std::move(json));
    for (const std::string& message : event.receives) {
      Json end = Base(kMessage, kMessage, thread, Microseconds(event.start));
      end.update({{"ph", "f"}, {"bp", "e"}, {"id", message}});
      json_.push_back(std::move(end));
    }
    for (const std::string& message : event.sends) {
      Json end = Base(kMessage, kMessage, thread, LeaveTime(event));
      end.update({{"ph", "s"}, {"id", message}});
      json_.push_back(std::move(end));
    }
  }

  Json Take() { return std::move(json_); }

 private:
  Json Base(const std::string& name, const std::string& category, int thread,
            double time) const {
    return {{"pid", rank_},
            {"tid", thread},
            {"ts", time},
            {"name", name},
            {"cat", category}};
  }

  const int rank_;
  Json json_ = Json::array();
};

std::string Print(Json events, Json ranks) {
  const Json file = {{kEvents, std::move(events)},
                     {"displayTimeUnit", "ms"},
                     {kOther, {{kRanks, std::move(ranks)}}}};
  // A name may come from a user's file: bytes that are no UTF-8 are replaced.
  return file.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

// A rank's part, read again; null: it is none.
Json ReadPart(const std::string& text) {
  Json part = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_part =
      part.is_object() && part.contains(kEvents) && part[kEvents].is_array() &&
      part.contains(kOther) && part[kOther].is_object() &&
      part[kOther].contains(kRanks) && part[kOther][kRanks].is_array() &&
      part[kOther][kRanks].size() == 1 && part[kOther][kRanks][0].is_object();
  if (!is_part) return nullptr;
  for (const Json& event : part[kEvents]) {
    if (!event.is_object() || !event.contains("ph")) return nullptr;
    if (event.contains("ts") && !event["ts"].is_number()) return nullptr;
    if (event.contains("id") && !event["id"].is_string()) return nullptr;
  }
  return part;
}

// Numbers flows of which both ends are there, and leaves out other ends.
Json NumberFlows(Json events) {
  struct Ends {
    int begins = 0;
    int ends = 0;
    int64_t number = 0;
  };
  std::map<std::string, Ends> flows;
  for (const Json& event : events) {
    if (!event.contains("id")) continue;
    Ends& ends = flows[event["id"].get<std::string>()];
    ++(event["ph"] == "s" ? ends.begins : ends.ends);
  }
  int64_t flow = 0;
  Json kept = Json::array();
  for (Json& event : events) {
    if (event.contains("id")) {
      Ends& ends = flows[event["id"].get<std::string>()];
      if (ends.begins != 1 || ends.ends != 1) continue;
      if (ends.number == 0) ends.number = ++flow;
      event["id"] = ends.number;
    }
    kept.push_back(std::move(event));
  }
  return kept;
}

}  // namespace

std::string TraceToJson(const std::vector<TraceEvent>& events,
                        const TraceProcess& process) {
  Events sorted;
  for (const TraceEvent& event : events) sorted.push_back(&event);
  std::stable_sort(sorted.begin(), sorted.end(), Before);
  std::vector<std::string> tracks;  // in order of the first event
  std::map<std::string, Events> by_track;
  RankWriter writer(process.rank);
  writer.AddMetadata(
      0, "process_name",
      {{"name", absl::StrCat("rank ", process.rank,
                             process.host.empty()
                                 ? ""
                                 : absl::StrCat(" (", process.host, ")"))}});
  writer.AddMetadata(0, "process_sort_index", {{"sort_index", process.rank}});
  for (const TraceEvent* event : sorted) {
    if (!event->values.empty()) {
      writer.AddCounter(*event);
      continue;
    }
    Events& of_track = by_track[event->track];
    if (of_track.empty()) tracks.push_back(event->track);
    of_track.push_back(event);
  }
  int thread = 0;
  for (const std::string& track : tracks) {
    int number = 0;
    for (const Row& row : MakeRows(by_track[track])) {
      ++thread;
      const std::string name =
          ++number == 1 ? track : absl::StrCat(track, " (", number, ")");
      writer.AddMetadata(thread, "thread_name", {{"name", name}});
      writer.AddMetadata(thread, "thread_sort_index", {{"sort_index", thread}});
      for (const TraceEvent* event : row.events()) {
        writer.AddSlice(*event, thread);
      }
    }
  }
  return Print(writer.Take(), {{{"rank", process.rank},
                                {"host", process.host},
                                {"dropped_events", process.dropped}}});
}

absl::StatusOr<std::string> JoinTraces(absl::Span<const std::string> texts,
                                       absl::Span<const ClockOffset> offsets) {
  CHECK(offsets.empty() || offsets.size() == texts.size());
  Json events = Json::array();
  Json ranks = Json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    Json part = ReadPart(texts[i]);
    if (part.is_null()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "text ", i, " is no trace: expected a JSON object with \"", kEvents,
          "\", as TraceToJson writes it, got '", texts[i].substr(0, 40), "'"));
    }
    const ClockOffset offset = offsets.empty() ? ClockOffset() : offsets[i];
    const double shift = Microseconds(offset.offset);
    for (Json& event : part[kEvents]) {
      if (shift != 0 && event.contains("ts")) {
        event["ts"] = event["ts"].get<double>() + shift;
      }
      events.push_back(std::move(event));
    }
    Json& rank = part[kOther][kRanks][0];
    rank["clock_offset_us"] = shift;
    rank["clock_uncertainty_us"] = Microseconds(offset.uncertainty);
    ranks.push_back(std::move(rank));
  }
  return Print(NumberFlows(std::move(events)), std::move(ranks));
}

}  // namespace tandem
