// Flight dumps of this process: where they are written, and when.

#ifndef TANDEM_CORE_FLIGHT_DUMP_FILE_H_
#define TANDEM_CORE_FLIGHT_DUMP_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/flight/dump.h"

namespace tandem {

struct FlightJob {
  int rank = 0;
  int world_size = 1;
  std::string id;      // the same on all ranks, and no other job's
  std::string folder;  // made when the first dump is written
  // Is it in a folder that everybody on the machine can write to? Then it is
  // made for this user alone, and one of another user's is refused. Dumps of
  // this user's beside it whose names are the same up to the last '-', and that
  // nobody has written to for a week, are removed then.
  bool is_private = false;
};

// From now on this process writes dumps. For programs: a library that nobody
// has told where to writes none. Thread-safe.
void SetFlightJob(FlightJob job);

// "FOLDER/rank_3.json".
std::string FlightDumpPath(const std::string& folder, int rank);

// Writes what the recorder of this process holds to this rank's file, in place
// of an earlier dump but for that of a failure, and returns the file's path.
// FailedPrecondition where nobody has called SetFlightJob; else errors are
// those of the file. Thread-safe.
absl::StatusOr<std::string> DumpFlight(FlightTrigger trigger,
                                       const std::string& reason);

// The same when something has failed: the first time in a process, since what
// fails later fails because of it. Logs where the dump is and what reads it.
void DumpFlightOfFailure(FlightTrigger trigger, const std::string& reason);

// Flight dumps on signals: on SIGUSR2, and at a death by a fatal signal.

// From now on SIGUSR2 has this process write a flight dump and go
// on; SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (a failed CHECK) have it
// write one, within 3 seconds, and die as they would. A thread of its own
// writes: a handler may do next to nothing. SIGUSR2 that the process was
// started to ignore stays ignored.
//
// The handler of SIGUSR2 runs on the signal thread
// (core/process/signal_thread.h), which this starts where it is not there yet.
// For programs, once, from main: a library leaves signals alone.
void HandleFlightSignals();

}  // namespace tandem

#endif  // TANDEM_CORE_FLIGHT_DUMP_FILE_H_
