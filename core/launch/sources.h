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

// Task variables: by which launchers of tasks, those of MPIs and of schedulers,
// tell each task its place. docs/launching.md has them as a table. Pure.

// The variables of a launcher's tasks. Where several names stand, the first
// that is set counts; none: it is not told.
struct TaskVariables {
  std::string launcher;           // as in Launch
  std::vector<std::string> mark;  // one is set in its tasks alone
  std::vector<std::string> rank;
  std::vector<std::string> world_size;
  std::vector<std::string> local_rank;
  std::vector<std::string> local_world_size;
  std::vector<std::string> node_rank;
  std::vector<std::string> nnodes;
  std::vector<std::string> job;  // another one in each job
};

// Launchers that may run in a task of Slurm, innermost first.
const std::vector<TaskVariables>& LaunchersWithinSlurm();
// The launchers whose variables Slurm's tasks may have, too, beside its own.
const std::vector<TaskVariables>& LaunchersLikeSlurm();

// No claims where it is no task of that launcher's. Ranks meet on loopback
// where all are on this node, and at a port that the job has computed, or the
// usual one where nothing names the job.
absl::StatusOr<LaunchClaims> ClaimsOfTask(const TaskVariables& names,
                                          const Environment& env);

// What the environment as a whole claims. The innermost of several launchers
// around each other counts: torchrun (or tandem's own), then an MPI, then Slurm
// (TaskVariables has all that start tasks). RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT set by hand are heard beside those of a task and must agree with
// them.
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
