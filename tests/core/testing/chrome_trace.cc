#include "tests/core/testing/chrome_trace.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Thread = std::pair<int, int>;

// A time is a double of microseconds since the machine was started.
constexpr double kRounding = 0.02;

absl::Status Wrong(const Json& event, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", event.dump()));
}

bool IsWhole(const Json& event, const char* key) {
  return event.contains(key) && event[key].is_number_integer();
}

bool IsTime(const Json& event, const char* key) {
  return event.contains(key) && event[key].is_number() &&
         event[key].get<double>() >= 0;
}

class Reader {
 public:
  absl::Status Read(const Json& event) {
    if (!event.is_object() || !event.contains("ph") ||
        !event["ph"].is_string()) {
      return Wrong(event, "no phase");
    }
    if (!IsWhole(event, "pid") || !IsWhole(event, "tid")) {
      return Wrong(event, "no process and thread");
    }
    if (!event.contains("name") || !event["name"].is_string()) {
      return Wrong(event, "no name");
    }
    const std::string phase = event["ph"];
    if (phase == "M") return ReadMetadata(event);
    if (!IsTime(event, "ts")) return Wrong(event, "no time");
    if (!event.contains("cat") || !event["cat"].is_string()) {
      return Wrong(event, "no category");
    }
    if (phase == "X" || phase == "i") return ReadSlice(event);
    if (phase == "C") return ReadSample(event);
    if (phase == "s" || phase == "f") return ReadFlowEnd(event);
    return Wrong(event, "unknown phase");
  }

  absl::StatusOr<ChromeTrace> Finish() {
    for (auto& [thread, slices] : slices_) {
      const auto name = threads_.find(thread);
      if (name == threads_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("thread ", thread.first, ".", thread.second,
                         " has slices and no name"));
      }
      const absl::Status nests = Nest(slices);
      if (!nests.ok()) return nests;
      for (ChromeSlice& each : slices) {
        each.track = name->second;
        trace_.slices.push_back(each);
      }
    }
    for (const Thread& each : used_) {
      if (trace_.processes.count(each.first) == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("process ", each.first, " has no name"));
      }
    }
    for (const auto& [id, ends] : flows_) {
      if (!ends.begin.has_value() || !ends.end.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("flow ", id, " has one end alone"));
      }
      const auto from = SliceAt(*ends.begin);
      const auto to = SliceAt(*ends.end);
      if (!from || !to) {
        return absl::InvalidArgumentError(
            absl::StrCat("an end of flow ", id, " lies in no slice"));
      }
      if (ends.end->time <= ends.begin->time) {
        return absl::InvalidArgumentError(
            absl::StrCat("flow ", id, " ends before it begins"));
      }
      trace_.flows.push_back({*from, *to});
    }
    return std::move(trace_);
  }

 private:
  struct End {
    Thread thread;
    double time = 0;
  };
  struct Ends {
    std::optional<End> begin;
    std::optional<End> end;
  };

  absl::Status ReadMetadata(const Json& event) {
    const std::set<std::string> known = {"process_name", "process_sort_index",
                                         "thread_name", "thread_sort_index"};
    const std::string name = event["name"];
    if (known.count(name) == 0) return Wrong(event, "unknown metadata");
    const bool is_name = name == "process_name" || name == "thread_name";
    const char* const key = is_name ? "name" : "sort_index";
    if (!event.contains("args") || !event["args"].contains(key) ||
        (is_name ? !event["args"][key].is_string()
                 : !event["args"][key].is_number_integer())) {
      return Wrong(event, "no value");
    }
    const int process = event["pid"];
    if (name == "process_name") trace_.processes[process] = event["args"][key];
    if (name == "thread_name") {
      threads_[{process, event["tid"].get<int>()}] = event["args"][key];
    }
    return absl::OkStatus();
  }

  absl::Status ReadSlice(const Json& event) {
    const bool lasts = event["ph"] == "X";
    if (lasts && !IsTime(event, "dur")) return Wrong(event, "no length");
    if (!lasts && (!event.contains("s") || event["s"] != "t")) {
      return Wrong(event, "no scope");
    }
    const Thread thread = {event["pid"], event["tid"]};
    const double begin = event["ts"];
    const double length = lasts ? event["dur"].get<double>() : 0;
    slices_[thread].push_back(
        {thread.first, "", event["name"], begin, begin + length});
    used_.insert(thread);
    return absl::OkStatus();
  }

  // In the file the one that holds another stands before it.
  static absl::Status Nest(std::vector<ChromeSlice>& slices) {
    std::vector<const ChromeSlice*> open;
    double before = 0;
    for (ChromeSlice& each : slices) {
      if (each.begin < before) {
        return absl::InvalidArgumentError(
            absl::StrCat("times do not ascend: ", each.name));
      }
      before = each.begin;
      while (!open.empty() && open.back()->end <= each.begin + kRounding) {
        open.pop_back();
      }
      if (!open.empty() && each.end > open.back()->end + kRounding) {
        return absl::InvalidArgumentError(
            absl::StrCat(each.name, " lies neither inside nor outside of ",
                         open.back()->name));
      }
      each.depth = static_cast<int>(open.size());
      open.push_back(&each);
    }
    return absl::OkStatus();
  }

  absl::Status ReadSample(const Json& event) {
    if (!event.contains("args") || !event["args"].is_object() ||
        event["args"].empty()) {
      return Wrong(event, "no values");
    }
    ChromeSample sample = {event["pid"], event["name"], event["ts"], {}};
    for (const auto& [series, value] : event["args"].items()) {
      if (!value.is_number()) return Wrong(event, "a value is no number");
      sample.values[series] = value;
    }
    double& last = last_sample_[{sample.process, sample.counter}];
    if (sample.time < last) return Wrong(event, "times do not ascend");
    last = sample.time;
    used_.insert({sample.process, 0});
    trace_.samples.push_back(std::move(sample));
    return absl::OkStatus();
  }

  absl::Status ReadFlowEnd(const Json& event) {
    if (!IsWhole(event, "id")) return Wrong(event, "no number of a flow");
    // What viewers match flows by, too.
    if (event["name"] != "message" || event["cat"] != "message") {
      return Wrong(event, "a flow of another name");
    }
    const bool begins = event["ph"] == "s";
    if (!begins && (!event.contains("bp") || event["bp"] != "e")) {
      return Wrong(event, "the end binds to the next slice");
    }
    Ends& ends = flows_[event["id"].get<int64_t>()];
    std::optional<End>& end = begins ? ends.begin : ends.end;
    if (end.has_value()) return Wrong(event, "the number of another flow");
    end = End{{event["pid"], event["tid"]}, event["ts"]};
    return absl::OkStatus();
  }

  // The outermost one.
  std::optional<ChromeSlice> SliceAt(const End& end) const {
    std::optional<ChromeSlice> found;
    for (const ChromeSlice& each : trace_.slices) {
      const bool holds = each.begin <= end.time + kRounding &&
                         end.time <= each.end + kRounding;
      if (!holds || each.depth > 0 || each.process != end.thread.first) {
        continue;
      }
      const auto track = threads_.find(end.thread);
      if (track == threads_.end() || each.track != track->second) continue;
      // One that ends there holds it less than one that begins there.
      if (!found || each.begin >= found->begin) found = each;
    }
    return found;
  }

  ChromeTrace trace_;
  std::map<Thread, std::string> threads_;
  std::map<Thread, std::vector<ChromeSlice>> slices_;
  std::set<Thread> used_;
  std::map<int64_t, Ends> flows_;
  std::map<std::pair<int, std::string>, double> last_sample_;
};

}  // namespace

std::vector<std::string> ChromeTrace::SliceNames(
    int process, const std::string& track) const {
  std::vector<std::string> names;
  for (const ChromeSlice& each : slices) {
    if (each.process == process && each.track == track) {
      names.push_back(each.name);
    }
  }
  return names;
}

std::vector<ChromeSlice> ChromeTrace::SlicesNamed(
    const std::string& name) const {
  std::vector<ChromeSlice> named;
  for (const ChromeSlice& each : slices) {
    if (each.name == name) named.push_back(each);
  }
  return named;
}

absl::StatusOr<ChromeTrace> ReadChromeTrace(absl::string_view text) {
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || !file.contains("traceEvents") ||
      !file["traceEvents"].is_array()) {
    return absl::InvalidArgumentError("no object with traceEvents");
  }
  Reader reader;
  for (const Json& event : file["traceEvents"]) {
    const absl::Status read = reader.Read(event);
    if (!read.ok()) return read;
  }
  absl::StatusOr<ChromeTrace> trace = reader.Finish();
  if (trace.ok() && file.contains("otherData")) {
    trace->ranks = file["otherData"]["ranks"];
  }
  return trace;
}

}  // namespace tandem
