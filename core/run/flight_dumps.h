// Flight dumps of a job: all ranks' in one folder.

#ifndef TANDEM_CORE_RUN_FLIGHT_DUMPS_H_
#define TANDEM_CORE_RUN_FLIGHT_DUMPS_H_

#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace tandem {

// From now on this rank writes what it was doing to FOLDER/rank_N.json when
// something fails or is asked for (core/flight/dump_file.h). `folder` is the
// same on all ranks of `world`; empty: one of this job's own among temporary
// files ($TMPDIR, else /tmp), whose name rank 0 draws, and which goes a week
// later, when another one is made. It is made only when there is something to
// write. Collective; DeadlineExceeded where rank 0 has not said which.
absl::Status StartFlightDumps(const Communicator& world,
                              const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_CORE_RUN_FLIGHT_DUMPS_H_
