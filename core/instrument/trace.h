// Trace of what ran when, for a viewer: Chrome's trace format, which Perfetto
// and chrome://tracing open. A program writes the text with WriteFileAtomically
// (atomic_file.h); ranks send theirs to one by Communicator::AllGatherString.

#ifndef TANDEM_CORE_INSTRUMENT_TRACE_H_
#define TANDEM_CORE_INSTRUMENT_TRACE_H_

#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

namespace tandem {

// One thing that took time, or with end == start a moment.
struct TraceEvent {
  using Clock = std::chrono::steady_clock;

  std::string track;  // a row of the picture: "compute", "communication"
  std::string name;   // "forward", "all-reduce of bucket 1"
  std::string category;
  Clock::time_point start;
  Clock::time_point end;
  std::vector<std::pair<std::string, std::string>> args;  // shown on a click
};

// Collects events while it is on. Off at first; what is added then is dropped,
// at the cost of one relaxed load. Thread-safe. It grows without bound: turn it
// on for some steps, not for a run.
class Trace {
 public:
  // The one that tandem's own code adds to.
  static Trace& OfProcess();

  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  // Forgets what was collected, and begins.
  void Start();
  // Ends, and hands over what was collected.
  std::vector<TraceEvent> Stop();

  // Looks whether it is on first; a caller that would build strings in vain
  // looks itself. Times need not be of now: that of a collective is known after
  // it ended.
  void Add(TraceEvent event);

 private:
  std::atomic<bool> on_{false};
  absl::Mutex mutex_;
  std::vector<TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
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

// The file's text for one rank: process "rank N", a thread for each track in
// order of its first event. Events of one track that overlap without one lying
// inside the other are put on further rows, "communication (2)", since slices
// of a row must nest. Times are those of the steady clock, which processes of
// one host share, in microseconds.
std::string TraceToJson(const std::vector<TraceEvent>& events, int rank);

// One file's text from those of several ranks. InvalidArgument names the first
// text, counted from 0, that TraceToJson has not written.
absl::StatusOr<std::string> JoinTraces(absl::Span<const std::string> texts);

}  // namespace tandem

#endif  // TANDEM_CORE_INSTRUMENT_TRACE_H_
