// For tests: events of a trace, at times that are given.

#ifndef TANDEM_TESTS_CORE_INSTRUMENT_TRACE_EVENTS_H_
#define TANDEM_TESTS_CORE_INSTRUMENT_TRACE_EVENTS_H_

#include <chrono>
#include <string>

#include "core/instrument/trace.h"

namespace tandem {

inline TraceEvent::Clock::time_point At(int microseconds) {
  return TraceEvent::Clock::time_point(std::chrono::microseconds(microseconds));
}

// From one time to another, in microseconds.
inline TraceEvent Event(const std::string& track, const std::string& name,
                        int start, int end) {
  TraceEvent event;
  event.track = track;
  event.name = name;
  event.start = At(start);
  event.end = At(end);
  return event;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_INSTRUMENT_TRACE_EVENTS_H_
