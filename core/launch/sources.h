// Launch environment variables: what those of torchrun, Slurm, MPIs and others
// claim; docs/launching.md has the table. Pure.

#ifndef TANDEM_CORE_LAUNCH_SOURCES_H_
#define TANDEM_CORE_LAUNCH_SOURCES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/environment.h"
#include "core/launch/claims.h"

namespace tandem {

// What the environment as a whole claims. Of several launchers around each
// other the innermost speaks: torchrun (or tandem's own), then an MPI, then
// Slurm (core/launch/task_variables.h has all that start tasks). RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand are heard beside those of
// a task and must agree with them.
absl::StatusOr<LaunchClaims> ClaimsOfEnvironment(const Environment& env);

// RANK, WORLD_SIZE and their like, set by torchrun, by tandem or by hand.
absl::StatusOr<LaunchClaims> ClaimsOfTorchrun(const Environment& env);

// A task of a Slurm step. No claims for a mere job (the shell of salloc or the
// script of sbatch), where there is no SLURM_STEP_ID. InvalidArgument for one
// of a heterogeneous job.
absl::StatusOr<LaunchClaims> ClaimsOfSlurm(const Environment& env);

// Slurm's tasks per node: "2(x3),1" is {2, 2, 2, 1}.
absl::StatusOr<std::vector<int>> ParseTasksPerNode(absl::string_view text);

// The first host of Slurm's list: "gpu[03-07,9],cpu1" is "gpu03".
std::string FirstHost(absl::string_view nodelist);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_SOURCES_H_
