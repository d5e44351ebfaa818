// Trace file: Chrome's Trace Event Format, which Perfetto and chrome://tracing
// open. A program writes the text with WriteFileAtomically (atomic_file.h);
// ranks send theirs to one by Communicator::AllGatherString.

#ifndef TANDEM_CORE_INSTRUMENT_TRACE_FILE_H_
#define TANDEM_CORE_INSTRUMENT_TRACE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/instrument/clock_offset.h"
#include "core/instrument/trace.h"

namespace tandem {

// The process whose events they are.
struct TraceProcess {
  int rank = 0;
  std::string host = "";  // its name; empty: not told
  int64_t dropped = 0;    // Trace::dropped
};

// One rank's part of a file, for JoinTraces: process "rank N (host)", a thread
// for each track in order of its first event. Events of one track that overlap
// without one lying inside the other are put on further rows, "communication
// (2)", since slices of a row must nest. Times are those of this host's steady
// clock, in microseconds.
std::string TraceToJson(const std::vector<TraceEvent>& events,
                        const TraceProcess& process);

// A file's text from its ranks' parts; one alone is a file, too. Messages
// become flows, numbered from 1, where both of their ends are there, and are
// left out elsewhere. `offsets`, by text, are added to its times, so that all
// are those of one clock; empty: they are. "otherData" says what was added, how
// wrong it may be, and how many events of each rank were dropped.
//
// InvalidArgument names the first text, counted from 0, that TraceToJson has
// not written.
absl::StatusOr<std::string> JoinTraces(
    absl::Span<const std::string> texts,
    absl::Span<const ClockOffset> offsets = {});

}  // namespace tandem

#endif  // TANDEM_CORE_INSTRUMENT_TRACE_FILE_H_
