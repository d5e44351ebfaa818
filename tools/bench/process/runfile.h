// Files that come with the benchmark: its ranks' program, the peers' scripts.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_RUNFILE_H_
#define TANDEM_TOOLS_BENCH_PROCESS_RUNFILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// The path of a file of this workspace ("tools/bench/rank/rank") among the
// program's runfiles, however the program was started. NotFound if it is not
// there.
absl::StatusOr<std::string> Runfile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_RUNFILE_H_
