// Trace of what ran when, on one process: slices, counters and messages. As a
// file for a viewer: trace_file.h.

#ifndef TANDEM_CORE_INSTRUMENT_TRACE_H_
#define TANDEM_CORE_INSTRUMENT_TRACE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// One thing that took time, or with end == start a moment; or a sample of a
// counter.
struct TraceEvent {
  using Clock = std::chrono::steady_clock;

  std::string track;  // a row of the picture: "compute", "communication"
  std::string name;   // "forward", "all-reduce of bucket 1"
  std::string category;
  Clock::time_point start;
  Clock::time_point end;
  std::vector<std::pair<std::string, std::string>> args;  // shown on a click

  // Messages that it sends and receives, each by a name that no other message
  // of the trace has: an arrow leads from the one event to the other, on
  // whatever ranks they are.
  std::vector<std::string> sends = {};
  std::vector<std::string> receives = {};

  // A counter's values at `start`, by series; it has no track. Empty: this is
  // no sample of a counter.
  std::vector<std::pair<std::string, double>> values = {};
};

// The row of what a rank's host does in a step, one thing after the other:
// "load batch", "forward/backward", "update".
inline constexpr char kHostTrack[] = "host";

// The most events that a trace keeps unless it is told another number: about
// 60 MB, and 50 MB of the file.
inline constexpr int64_t kMostTraceEvents = 200000;

// Collects events while it is on. Off at first; what is added then is dropped,
// at the cost of one relaxed load. Thread-safe.
class Trace {
 public:
  // The one that tandem's own code adds to.
  static Trace& OfProcess();

  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  // Forgets what was collected, and begins. What comes after `most` events is
  // dropped, and counted.
  void Start(int64_t most = kMostTraceEvents);
  // Ends, and hands over what was collected.
  std::vector<TraceEvent> Stop();

  // When it was started last.
  TraceEvent::Clock::time_point started() const;
  // How many events it had no room for since then.
  int64_t dropped() const;

  // Looks whether it is on first; a caller that would build strings in vain
  // looks itself. Times need not be of now: that of a collective is known after
  // it ended.
  void Add(TraceEvent event);
  // An event whose times are not known yet, since a device has still to come to
  // them: Stop calls `event`, which may wait, and throws nothing.
  void AddLater(std::function<TraceEvent()> event);
  // A sample of the counter `name`, of now.
  void Count(absl::string_view name,
             std::vector<std::pair<std::string, double>> values);

 private:
  bool HasRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<bool> on_{false};
  mutable absl::Mutex mutex_;
  std::vector<TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<TraceEvent()>> later_ ABSL_GUARDED_BY(mutex_);
  int64_t most_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  TraceEvent::Clock::time_point started_ ABSL_GUARDED_BY(mutex_);
};

// Adds an event from here to the end of the block to the trace of the process,
// when that is on at both ends. The texts must live as long.
//
//   TraceScope scope("compute", "forward");
class TraceScope {
 public:
  TraceScope(absl::string_view track, absl::string_view name)
      : on_(Trace::OfProcess().is_on()), track_(track), name_(name) {
    if (on_) start_ = TraceEvent::Clock::now();
  }
  ~TraceScope() {
    if (on_) End();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  void End() const;

  bool on_;
  absl::string_view track_;
  absl::string_view name_;
  TraceEvent::Clock::time_point start_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_INSTRUMENT_TRACE_H_
