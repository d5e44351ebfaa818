#include "core/launch/task_variables.h"

#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/launch/variable_claims.h"

namespace tandem {
namespace {

bool IsOnOneNode(const LaunchClaims& claims) {
  if (claims.nnodes.has_value()) return claims.nnodes->value == 1;
  return claims.world_size.has_value() && claims.local_world_size.has_value() &&
         claims.world_size->value == claims.local_world_size->value;
}

}  // namespace

const std::vector<TaskVariables>& LaunchersWithinSlurm() {
  // OMPI_COMM_WORLD_NODE_RANK is not the node's number but the process's on its
  // node. Flux unsets its own for whatever starts tasks within it, and leaves
  // those of an MPI that has started Flux.
  static const auto* const launchers = new std::vector<TaskVariables>{
      {"flux",
       {"FLUX_TASK_RANK"},
       {"FLUX_TASK_RANK"},
       {"FLUX_JOB_SIZE"},
       {"FLUX_TASK_LOCAL_ID"},
       {},
       {},
       {"FLUX_JOB_NNODES"},
       {"FLUX_JOB_ID"}},
      {"openmpi",
       {"OMPI_COMM_WORLD_RANK"},
       {"OMPI_COMM_WORLD_RANK"},
       {"OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_LOCAL_RANK"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       {},
       {},
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
      {"mvapich",
       {"MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"},
       {"MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"},
       {"MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE"},
       {"MV2_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_RANK"},
       {"MV2_COMM_WORLD_LOCAL_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE"},
       {},
       {},
       {"MPIRUN_ID"}},
      // Hydra, which Intel MPI has as well.
      {"mpich",
       {"MPI_LOCALRANKID"},
       {"PMI_RANK"},
       {"PMI_SIZE"},
       {"MPI_LOCALRANKID"},
       {"MPI_LOCALNRANKS"},
       {},
       {},
       {}},
      {"jsrun",
       {"JSM_NAMESPACE_RANK"},
       {"JSM_NAMESPACE_RANK"},
       {"JSM_NAMESPACE_SIZE"},
       {"JSM_NAMESPACE_LOCAL_RANK"},
       {"JSM_NAMESPACE_LOCAL_SIZE"},
       {},
       {},
       {"LSB_JOBID"}},
  };
  return *launchers;
}

const std::vector<TaskVariables>& LaunchersLikeSlurm() {
  static const auto* const launchers = new std::vector<TaskVariables>{
      {"pals",
       {"PALS_RANKID"},
       {"PALS_RANKID"},
       {"PMI_SIZE", "PALS_SIZE"},
       {"PALS_LOCAL_RANKID"},
       {"PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"},
       {"PALS_NODEID"},
       {},
       {"PALS_APID"}},
      {"pmi",
       {"PMI_RANK"},
       {"PMI_RANK"},
       {"PMI_SIZE"},
       {"PMI_LOCAL_RANK"},
       {"PMI_LOCAL_SIZE"},
       {},
       {},
       {"PMI_JOBID"}},
      // How many there are is no variable of PMIx: a server would have to be
      // asked.
      {"pmix",
       {"PMIX_RANK"},
       {"PMIX_RANK"},
       {},
       {},
       {},
       {},
       {},
       {"PMIX_NAMESPACE"}},
  };
  return *launchers;
}

absl::StatusOr<LaunchClaims> ClaimsOfTask(const TaskVariables& names,
                                          const Environment& env) {
  LaunchClaims claims;
  if (FirstOf(env, names.mark).empty() || FirstOf(env, names.rank).empty()) {
    return claims;
  }
  claims.launcher = names.launcher;
  TANDEM_ASSIGN_OR_RETURN(claims.rank, FirstIntClaim(env, names.rank));
  TANDEM_ASSIGN_OR_RETURN(claims.world_size,
                          FirstIntClaim(env, names.world_size));
  TANDEM_ASSIGN_OR_RETURN(claims.local_rank,
                          FirstIntClaim(env, names.local_rank));
  TANDEM_ASSIGN_OR_RETURN(claims.local_world_size,
                          FirstIntClaim(env, names.local_world_size));
  TANDEM_ASSIGN_OR_RETURN(claims.node_rank,
                          FirstIntClaim(env, names.node_rank));
  TANDEM_ASSIGN_OR_RETURN(claims.nnodes, FirstIntClaim(env, names.nnodes));
  claims.hides_nodes =
      !claims.local_world_size.has_value() && !claims.nnodes.has_value();
  // Which host rank 0 has is told by none of them.
  if (IsOnOneNode(claims)) claims.default_master_addr = "127.0.0.1";
  const std::string job = FirstOf(env, names.job);
  claims.default_master_port =
      job.empty() ? kDefaultMasterPort : PortOfJob(job);
  return claims;
}

}  // namespace tandem
