// Pod settings: torchrun's options as variables (PET_NNODES and others), as
// Kubernetes' training operators give them to the processes of a pod.

#ifndef TANDEM_CORE_LAUNCH_POD_SETTINGS_H_
#define TANDEM_CORE_LAUNCH_POD_SETTINGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "core/launch/claims.h"
#include "core/launch/resolve_launch.h"

namespace tandem {

struct PodSettings {
  // The user's, and what the variables say of what those leave open.
  LaunchSettings flags;
  // The environment's claims: without a rank where RANK counts pods and ranks
  // are to be started in each; with the pod's place for a pod's only rank.
  LaunchClaims from_env;
  // The variables that were read: "PET_NNODES=2, PET_NODE_RANK=1"; "": none.
  std::string source;
};

// For who is called by hand, or with RANK and WORLD_SIZE alone: of ranks of a
// launcher the variables are that launcher's, and nothing is read.
// InvalidArgument where they say what only torchrun does ("auto", "1:4"), or
// RANK and PET_NODE_RANK differ.
absl::StatusOr<PodSettings> ReadPodSettings(const LaunchSettings& flags,
                                            const LaunchClaims& from_env,
                                            const Environment& env);

// InvalidArgument where ranks or nodes that were given places by hand, in a
// pod, would meet others at MASTER_ADDR=localhost: PyTorchJob's master has
// that, and listens on all interfaces, as tandem does not.
absl::Status CheckPodsMeet(const LaunchClaims& claims, const Environment& env);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_POD_SETTINGS_H_
