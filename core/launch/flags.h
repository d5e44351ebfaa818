// Launch flags: those that place a process among the ranks, named as
// torchrun's. Linking this library defines them: a program's choice.

#ifndef TANDEM_CORE_LAUNCH_FLAGS_H_
#define TANDEM_CORE_LAUNCH_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/launch/resolve_launch.h"
#include "core/program/flag_guide.h"

namespace tandem {

// What the user gave of --nnodes, --node_rank, --nproc_per_node, --master_addr,
// --master_port, --world_size, --rank, --local_rank, --dist_url,
// --max_restarts, --min_ranks and --max_ranks. Call after the command line was
// parsed.
LaunchSettings LaunchSettingsFromFlags();

// These flags as a group, "Launch".
FlagGroup LaunchFlags();

// --job_secret_file; empty where it is not given.
std::string JobSecretFileFromFlags();

struct GraceSettings {
  absl::Duration restart_delay;
  absl::Duration stop_grace;
  absl::Duration join_timeout;
};

// The flags of these names. InvalidArgument for less than nothing, and for more
// than a day.
absl::StatusOr<GraceSettings> GraceSettingsFromFlags();

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_FLAGS_H_
