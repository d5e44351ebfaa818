// Reads the flight dumps of a job from a folder.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_READ_DUMPS_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_READ_DUMPS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/flight/dump.h"

namespace tandem {

struct FoundDumps {
  std::vector<FlightDump> dumps;     // by rank
  std::vector<std::string> ignored;  // files, each with the reason
};

// The rank_N.json of the job that wrote last; those of other jobs, and files
// that are no dumps of theirs, are ignored. NotFound where there is none.
absl::StatusOr<FoundDumps> ReadDumps(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_READ_DUMPS_H_
