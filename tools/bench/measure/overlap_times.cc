#include "tools/bench/measure/overlap_times.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"

namespace tandem {
namespace {

using nlohmann::json;

void AppendSpans(const json& pairs, std::vector<TimeSpan>* spans) {
  for (const json& each : pairs) spans->push_back({each.at(0), each.at(1)});
}

double MillisecondsSinceEpoch(TraceEvent::Clock::time_point time) {
  const std::chrono::duration<double, std::milli> since =
      time.time_since_epoch();
  return since.count();
}

}  // namespace

double Covered(std::vector<TimeSpan> spans) {
  std::sort(
      spans.begin(), spans.end(),
      [](const TimeSpan& a, const TimeSpan& b) { return a.begin < b.begin; });
  double sum = 0;
  double until = spans.empty() ? 0 : spans.front().begin;
  for (const TimeSpan& each : spans) {
    sum += std::max(0.0, each.end - std::max(each.begin, until));
    until = std::max(until, each.end);
  }
  return sum;
}

double CoveredByBoth(const std::vector<TimeSpan>& some,
                     const std::vector<TimeSpan>& others) {
  std::vector<TimeSpan> both;
  for (const TimeSpan& one : some) {
    for (const TimeSpan& other : others) {
      const TimeSpan common = {std::max(one.begin, other.begin),
                               std::min(one.end, other.end)};
      if (common.begin < common.end) both.push_back(common);
    }
  }
  return Covered(std::move(both));
}

json TraceSpans(const std::vector<TraceEvent>& events) {
  json spans = {{"all_reduces", json::array()}, {"backwards", json::array()}};
  for (const TraceEvent& each : events) {
    const char* kind = nullptr;
    if (absl::StartsWith(each.name, "all-reduce") ||
        absl::StartsWith(each.name, "reduce-scatter")) {
      kind = "all_reduces";
    }
    if (absl::StartsWith(each.track, "device") &&
        absl::StartsWith(each.name, "backward")) {
      kind = "backwards";
    }
    if (kind == nullptr) continue;
    spans[kind].push_back(
        {MillisecondsSinceEpoch(each.start), MillisecondsSinceEpoch(each.end)});
  }
  return spans;
}

OverlapTimes AllReduceOverlap(const std::vector<json>& answers, int pipe) {
  OverlapTimes times;
  const size_t steps = answers.front().at("steps").size();
  const size_t replicas = answers.size() / static_cast<size_t>(pipe);
  for (size_t step = 0; step < steps; ++step) {
    for (size_t replica = 0; replica < replicas; ++replica) {
      std::vector<TimeSpan> all_reduces;
      std::vector<TimeSpan> backwards;
      for (int place = 0; place < pipe; ++place) {
        const json& answer = answers[replica * static_cast<size_t>(pipe) +
                                     static_cast<size_t>(place)];
        AppendSpans(answer.at("steps").at(step).at("all_reduces"),
                    &all_reduces);
        AppendSpans(answer.at("steps").at(step).at("backwards"), &backwards);
      }
      times.all_reduce_ms += Covered(all_reduces);
      times.hidden_ms += CoveredByBoth(all_reduces, backwards);
    }
  }
  const auto count = static_cast<double>(steps * replicas);
  if (count > 0) times.all_reduce_ms /= count;
  if (count > 0) times.hidden_ms /= count;
  return times;
}

}  // namespace tandem
