// Restart count: how often a launcher has started a job's ranks again, after
// one died, and how often it would; torchrun's TORCHELASTIC_RESTART_COUNT and
// TORCHELASTIC_MAX_RESTARTS.

#ifndef TANDEM_CORE_LAUNCH_RESTART_COUNT_H_
#define TANDEM_CORE_LAUNCH_RESTART_COUNT_H_

#include "absl/status/statusor.h"
#include "core/base/environment.h"

namespace tandem {

struct RestartCount {
  int done = 0;  // 0 in the first attempt
  int most = 0;  // in all
};

// A rank's, from what its launcher set; nothing there: none, and none to come.
// InvalidArgument for what is no number from 0.
absl::StatusOr<RestartCount> RestartCountOf(const Environment& env);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_RESTART_COUNT_H_
