// Launch environment variables: what those of torchrun, Slurm, OpenMPI claim;
// docs/launching.md has the table. Pure.

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
// other the innermost speaks: torchrun (or tandem's own), then OpenMPI, then
// Slurm. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand are heard
// beside OpenMPI and Slurm and must agree with them.
absl::StatusOr<LaunchClaims> ClaimsOfEnvironment(const Environment& env);

// RANK, WORLD_SIZE and their like, set by torchrun, by tandem or by hand.
absl::StatusOr<LaunchClaims> ClaimsOfTorchrun(const Environment& env);

// A task of a Slurm step. No claims for a mere job (the shell of salloc or the
// script of sbatch), where there is no SLURM_STEP_ID.
absl::StatusOr<LaunchClaims> ClaimsOfSlurm(const Environment& env);

// A process under OpenMPI's mpirun.
absl::StatusOr<LaunchClaims> ClaimsOfOpenMpi(const Environment& env);

// The claim that `name` makes in `env`, if any.
absl::StatusOr<std::optional<Claim<int>>> IntClaim(const Environment& env,
                                                   const std::string& name);

// Slurm's tasks per node: "2(x3),1" is {2, 2, 2, 1}.
absl::StatusOr<std::vector<int>> ParseTasksPerNode(absl::string_view text);

// The first host of Slurm's list: "gpu[03-07,9],cpu1" is "gpu03".
std::string FirstHost(absl::string_view nodelist);

// A port that all ranks of one job compute alike, from what they all know of
// it: 20000 + FNV-1a(job) mod 10000, below Linux's ephemeral ports.
int PortOfJob(absl::string_view job);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_SOURCES_H_
