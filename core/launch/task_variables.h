// Task variables: by which launchers of tasks, those of MPIs and of schedulers,
// tell each task its place. docs/launching.md has them as a table. Pure.

#ifndef TANDEM_CORE_LAUNCH_TASK_VARIABLES_H_
#define TANDEM_CORE_LAUNCH_TASK_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "core/launch/claims.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_TASK_VARIABLES_H_
