// Flight dump: what one rank's flight recorder held, as a value and as JSON.

#ifndef TANDEM_CORE_FLIGHT_DUMP_H_
#define TANDEM_CORE_FLIGHT_DUMP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

enum class FlightKind { kCollective, kSend, kReceive, kAction };

// kScheduled: not yet given to the backend; of an action: it waits for its
// input. kStarted: given to the backend; an action: it computes.
enum class FlightState { kScheduled, kStarted, kCompleted };

// Why a dump was written.
enum class FlightTrigger {
  kTimeout,  // what this rank waited for did not come in time
  kFailed,   // what it waited for failed: for another rank's sake, say
  kGaveUp,   // it failed by itself: between two collectives, in a layer
  kSignal,   // somebody asked
  kDied,     // a fatal signal
};

// Times are nanoseconds since 1970, 0: not yet.
struct FlightEntry {
  int64_t id = 0;  // counts all entries of the process, from 0
  FlightKind kind = FlightKind::kCollective;
  std::string operation;  // "all-reduce", "send", "forward"
  int group = -1;         // in FlightDump::groups; -1: none, an action
  // Collectives count from 1 in their group; messages in their group, from 1,
  // among those to or from the same rank under the same tag.
  int64_t sequence = 0;
  int peer = -1;  // of a message, or the root: its number in the job; -1: none
  int tag = 0;    // of a message
  std::string dtype;
  std::vector<int64_t> sizes;
  std::string what;  // FlightPurpose
  int index = -1;
  int stage = -1;
  int microbatch = -1;
  int64_t step = 0;  // 0: the program does not say
  FlightState state = FlightState::kScheduled;
  int64_t scheduled_ns = 0;
  int64_t started_ns = 0;
  int64_t awaited_ns = 0;  // since when a thread waits for it
  int64_t completed_ns = 0;

  // "all-reduce #3 (bucket 1) of Float [5]", "receive from rank 1 (activations
  // of microbatch 2, stage 0) of Float [8, 3]", "forward of microbatch 2 in
  // stage 0".
  std::string ToString() const;
};

struct FlightGroupFacts {
  std::string name;  // as messages call it
  std::string id;  // tells groups of one name apart: the same on all its ranks
  std::vector<int> ranks;  // their numbers in the job
  int64_t scheduled = 0;   // collectives so far
};

struct FlightDump {
  int rank = 0;
  int world_size = 1;
  std::string job;  // drawn at its start: a folder may hold an older job's
  std::string host;
  int64_t pid = 0;
  FlightTrigger trigger = FlightTrigger::kSignal;
  std::string reason;  // in words
  int64_t dumped_ns = 0;
  std::vector<FlightGroupFacts> groups;
  std::vector<FlightEntry> entries;  // by id
};

// The JSON text of a dump, format version 1.
std::string EncodeFlightDump(const FlightDump& dump);

// Reads what somebody else may have written: InvalidArgument names what is
// missing, of another type or out of its range, or another version. Groups that
// entries name exist, and their ranks lie in [0, world_size).
absl::StatusOr<FlightDump> DecodeFlightDump(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_CORE_FLIGHT_DUMP_H_
