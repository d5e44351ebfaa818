#include "core/instrument/trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Events = std::vector<const TraceEvent*>;

constexpr char kEvents[] = "traceEvents";

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

double Microseconds(TraceEvent::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

Json EventToJson(const TraceEvent& event, int rank, int thread) {
  Json json = {{"pid", rank},
               {"tid", thread},
               {"ts", Microseconds(event.start.time_since_epoch())},
               {"name", event.name},
               {"cat", event.category.empty() ? event.track : event.category}};
  if (event.end > event.start) {
    json["ph"] = "X";
    json["dur"] = Microseconds(event.end - event.start);
  } else {
    json["ph"] = "i";
    json["s"] = "t";  // as wide as its thread
  }
  for (const auto& [key, value] : event.args) json["args"][key] = value;
  return json;
}

Json Metadata(int rank, int thread, const char* what, Json args) {
  return {{"ph", "M"},
          {"pid", rank},
          {"tid", thread},
          {"name", what},
          {"args", std::move(args)}};
}

std::string Print(Json events) {
  const Json file = {{kEvents, std::move(events)}, {"displayTimeUnit", "ms"}};
  // A name may come from a user's file: bytes that are no UTF-8 are replaced.
  return file.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

}  // namespace

Trace& Trace::OfProcess() {
  static auto* const trace = new Trace;
  return *trace;
}

void Trace::Start() {
  absl::MutexLock lock(&mutex_);
  events_.clear();
  on_ = true;
}

std::vector<TraceEvent> Trace::Stop() {
  absl::MutexLock lock(&mutex_);
  on_ = false;
  return std::exchange(events_, {});
}

void Trace::Add(TraceEvent event) {
  if (!is_on()) return;
  absl::MutexLock lock(&mutex_);
  if (is_on()) events_.push_back(std::move(event));
}

void TraceScope::End() const {
  TraceEvent event;
  event.track = std::string(track_);
  event.name = std::string(name_);
  event.start = start_;
  event.end = TraceEvent::Clock::now();
  Trace::OfProcess().Add(std::move(event));
}

std::string TraceToJson(const std::vector<TraceEvent>& events, int rank) {
  Events sorted;
  for (const TraceEvent& event : events) sorted.push_back(&event);
  std::stable_sort(sorted.begin(), sorted.end(), Before);
  std::vector<std::string> tracks;  // in order of the first event
  std::map<std::string, Events> by_track;
  for (const TraceEvent* event : sorted) {
    Events& of_track = by_track[event->track];
    if (of_track.empty()) tracks.push_back(event->track);
    of_track.push_back(event);
  }
  Json json = {Metadata(rank, 0, "process_name",
                        {{"name", absl::StrCat("rank ", rank)}}),
               Metadata(rank, 0, "process_sort_index", {{"sort_index", rank}})};
  int thread = 0;
  for (const std::string& track : tracks) {
    int number = 0;
    for (const Row& row : MakeRows(by_track[track])) {
      ++thread;
      const std::string name =
          ++number == 1 ? track : absl::StrCat(track, " (", number, ")");
      json.push_back(Metadata(rank, thread, "thread_name", {{"name", name}}));
      json.push_back(Metadata(rank, thread, "thread_sort_index",
                              {{"sort_index", thread}}));
      for (const TraceEvent* event : row.events()) {
        json.push_back(EventToJson(*event, rank, thread));
      }
    }
  }
  return Print(std::move(json));
}

absl::StatusOr<std::string> JoinTraces(absl::Span<const std::string> texts) {
  Json all = Json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    Json one = Json::parse(texts[i], nullptr, /*allow_exceptions=*/false);
    if (!one.is_object() || !one.contains(kEvents) ||
        !one[kEvents].is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "text ", i, " is no trace: expected a JSON object with \"", kEvents,
          "\", got '", texts[i].substr(0, 40), "'"));
    }
    for (Json& event : one[kEvents]) all.push_back(std::move(event));
  }
  return Print(std::move(all));
}

}  // namespace tandem
