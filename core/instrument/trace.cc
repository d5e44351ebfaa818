#include "core/instrument/trace.h"

#include <utility>

namespace tandem {

Trace& Trace::OfProcess() {
  static auto* const trace = new Trace;
  return *trace;
}

void Trace::Start(int64_t most) {
  absl::MutexLock lock(&mutex_);
  events_.clear();
  later_.clear();
  most_ = most;
  dropped_ = 0;
  started_ = TraceEvent::Clock::now();
  on_ = true;
}

std::vector<TraceEvent> Trace::Stop() {
  std::vector<TraceEvent> events;
  std::vector<std::function<TraceEvent()>> later;
  {
    absl::MutexLock lock(&mutex_);
    on_ = false;
    events = std::exchange(events_, {});
    later = std::exchange(later_, {});
  }
  // They may wait.
  events.reserve(events.size() + later.size());
  for (const auto& event : later) events.push_back(event());
  return events;
}

TraceEvent::Clock::time_point Trace::started() const {
  absl::MutexLock lock(&mutex_);
  return started_;
}

int64_t Trace::dropped() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

bool Trace::HasRoom() {
  if (!is_on()) return false;
  if (static_cast<int64_t>(events_.size() + later_.size()) < most_) return true;
  ++dropped_;
  return false;
}

void Trace::Add(TraceEvent event) {
  if (!is_on()) return;
  absl::MutexLock lock(&mutex_);
  if (HasRoom()) events_.push_back(std::move(event));
}

void Trace::AddLater(std::function<TraceEvent()> event) {
  if (!is_on()) return;
  absl::MutexLock lock(&mutex_);
  if (HasRoom()) later_.push_back(std::move(event));
}

void Trace::Count(absl::string_view name,
                  std::vector<std::pair<std::string, double>> values) {
  if (!is_on()) return;
  TraceEvent sample;
  sample.name = std::string(name);
  sample.start = TraceEvent::Clock::now();
  sample.end = sample.start;
  sample.values = std::move(values);
  Add(std::move(sample));
}

void TraceScope::End() const {
  TraceEvent event;
  event.track = std::string(track_);
  event.name = std::string(name_);
  event.start = start_;
  event.end = TraceEvent::Clock::now();
  Trace::OfProcess().Add(std::move(event));
}

}  // namespace tandem
