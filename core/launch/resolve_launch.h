// Launch resolution: from flags and environment to a place among the ranks,
// what a program asks first. Pure; docs/launching.md tells it to users.
//
//   TANDEM_ASSIGN_OR_RETURN(LaunchPlan plan,
//       ResolveLaunch(LaunchSettingsFromFlags(), Environment::OfProcess()));
//   if (plan.is_launcher) return RunLauncher(plan, ...);  //
//   core/launch/launcher.h Train(plan.launch);

#ifndef TANDEM_CORE_LAUNCH_RESOLVE_LAUNCH_H_
#define TANDEM_CORE_LAUNCH_RESOLVE_LAUNCH_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "core/elastic/rank_counts.h"
#include "core/launch/launch.h"
#include "core/launch/restarts.h"

namespace tandem {

// The flags of these names, where the user gave them.
struct LaunchSettings {
  std::optional<int> nnodes;
  std::optional<int> node_rank;
  std::optional<int> nproc_per_node;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;  // 0: any that is free, as if not given
  std::optional<int> world_size;   // counts processes
  std::optional<int> rank;
  std::optional<int> local_rank;
  std::optional<std::string> dist_url;  // env://, tcp://HOST:PORT, file:///PATH
  std::optional<int> max_restarts;
  std::optional<int> min_ranks;
  std::optional<int> max_ranks;
};

struct LaunchPlan {
  // False: this process is the rank that `launch` describes. True: it must
  // start launch.local_world_size ranks on this node, of which `launch` is the
  // first; a rendezvous port of 0 means any that is free, and
  // launch.node_rank 0 serves the store.
  bool is_launcher = false;
  Launch launch;
  // Restarts by the launcher that started this rank, if any did.
  RestartCount restarts;
  // Between which the number of ranks may change; `launch` is of the most.
  RankLimits limits;
};

// InvalidArgument, naming the flags and variables at fault with their values
// and what to do, when settings contradict each other or something is missing.
// No settings at all: one rank, nobody to meet.
absl::StatusOr<LaunchPlan> ResolveLaunch(const LaunchSettings& flags,
                                         const Environment& env);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_RESOLVE_LAUNCH_H_
