// Launch flags: those that place a process among the ranks, named as
// torchrun's. Linking this library defines them: a program's choice.

#ifndef TANDEM_CORE_LAUNCH_FLAGS_H_
#define TANDEM_CORE_LAUNCH_FLAGS_H_

#include "core/launch/resolve_launch.h"

namespace tandem {

// What the user gave of --nnodes, --node_rank, --nproc_per_node, --master_addr,
// --master_port, --world_size, --rank, --local_rank and --dist_url. Call after
// the command line was parsed.
LaunchSettings LaunchSettingsFromFlags();

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_FLAGS_H_
