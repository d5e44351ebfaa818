#include "core/launch/sources.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/launch/claims.h"
#include "core/launch/launch.h"

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
  if (FirstSet(env, names.mark).empty() || FirstSet(env, names.rank).empty()) {
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
  const std::string job = FirstSet(env, names.job);
  claims.default_master_port =
      job.empty() ? kDefaultMasterPort : PortOfJob(job);
  return claims;
}

namespace {

constexpr char kLoopback[] = "127.0.0.1";

std::string TorchrunsName(const Environment& env) {
  if (env.Get("TANDEM_LAUNCHER").has_value()) return "tandem";
  if (env.Get("TORCHELASTIC_RUN_ID").has_value()) return "torchrun";
  if (env.Get("RANK").has_value()) return "environment";
  return "none";
}

// Slurm's count of tasks on this node.
absl::StatusOr<std::optional<Claim<int>>> SlurmLocalSize(
    const Environment& env, const std::optional<Claim<int>>& node) {
  for (const char* name :
       {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const std::optional<std::string> text = env.Get(name);
    if (!text.has_value()) continue;
    auto counts = ParseTasksPerNode(*text);
    if (!counts.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", counts.status().message()));
    }
    const int index = node.has_value() ? node->value : 0;
    if (index < 0 || index >= static_cast<int>(counts->size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(node->source, " is not among the ", counts->size(),
                       " nodes of ", name, "=", *text));
    }
    return std::optional<Claim<int>>(
        {(*counts)[index], absl::StrCat(name, "=", *text)});
  }
  return IntClaim(env, "SLURM_NTASKS_PER_NODE");
}

// Each of its components numbers ranks on from the one before, and is told its
// own size alone.
absl::Status CheckOneComponent(const Environment& env) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<int> components,
                          env.GetInt("SLURM_HET_SIZE"));
  if (components.value_or(1) <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "SLURM_HET_SIZE=", *components,
      ": Slurm does not tell the tasks of a heterogeneous job how many they "
      "are in all; a step of one component works where the variable is not "
      "set: srun env -u SLURM_HET_SIZE ..."));
}

bool StartsSeveral(const LaunchClaims& claims) {
  return claims.world_size.has_value() && claims.world_size->value > 1;
}

// Within Slurm, a launcher that has started several tasks goes before one that
// has started a single one, in which another may have been called.
absl::StatusOr<LaunchClaims> ClaimsOfTasks(const Environment& env) {
  LaunchClaims lone;
  for (const TaskVariables& each : LaunchersWithinSlurm()) {
    TANDEM_ASSIGN_OR_RETURN(LaunchClaims claims, ClaimsOfTask(each, env));
    if (StartsSeveral(claims)) return claims;
    if (lone.launcher == "none") lone = std::move(claims);
  }
  if (lone.launcher != "none") return lone;
  TANDEM_ASSIGN_OR_RETURN(LaunchClaims slurm, ClaimsOfSlurm(env));
  if (slurm.launcher != "none") return slurm;
  for (const TaskVariables& each : LaunchersLikeSlurm()) {
    TANDEM_ASSIGN_OR_RETURN(LaunchClaims claims, ClaimsOfTask(each, env));
    if (claims.launcher != "none") return claims;
  }
  return LaunchClaims();
}

}  // namespace

absl::StatusOr<LaunchClaims> ClaimsOfTorchrun(const Environment& env) {
  LaunchClaims claims;
  claims.launcher = TorchrunsName(env);
  TANDEM_ASSIGN_OR_RETURN(claims.rank, IntClaim(env, "RANK"));
  TANDEM_ASSIGN_OR_RETURN(claims.world_size, IntClaim(env, "WORLD_SIZE"));
  TANDEM_ASSIGN_OR_RETURN(claims.local_rank, IntClaim(env, "LOCAL_RANK"));
  TANDEM_ASSIGN_OR_RETURN(claims.local_world_size,
                          IntClaim(env, "LOCAL_WORLD_SIZE"));
  TANDEM_ASSIGN_OR_RETURN(claims.node_rank, IntClaim(env, "GROUP_RANK"));
  TANDEM_ASSIGN_OR_RETURN(claims.nnodes, IntClaim(env, "GROUP_WORLD_SIZE"));
  TANDEM_ASSIGN_OR_RETURN(claims.master_port, IntClaim(env, "MASTER_PORT"));
  claims.master_addr = HostClaim(env, "MASTER_ADDR");
  // torch/distributed/rendezvous.py does the same: the agent (the launcher)
  // holds the store. Its own keys and those of an earlier attempt are in it
  // too.
  claims.served_by_launcher =
      FirstSet(env, {"TORCHELASTIC_USE_AGENT_STORE"}) == "True";
  if (claims.served_by_launcher) {
    claims.key_prefix = absl::StrCat(
        "tandem/attempt_", FirstSet(env, {"TORCHELASTIC_RESTART_COUNT"}), "/");
  }
  return claims;
}

absl::StatusOr<LaunchClaims> ClaimsOfSlurm(const Environment& env) {
  LaunchClaims claims;
  const std::string step = FirstSet(env, {"SLURM_STEP_ID", "SLURM_STEPID"});
  if (step.empty() || !env.Get("SLURM_PROCID").has_value()) return claims;
  claims.launcher = "slurm";
  TANDEM_RETURN_IF_ERROR(CheckOneComponent(env));
  TANDEM_ASSIGN_OR_RETURN(claims.rank, IntClaim(env, "SLURM_PROCID"));
  TANDEM_ASSIGN_OR_RETURN(
      claims.world_size,
      FirstIntClaim(env, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}));
  TANDEM_ASSIGN_OR_RETURN(claims.local_rank, IntClaim(env, "SLURM_LOCALID"));
  TANDEM_ASSIGN_OR_RETURN(claims.node_rank, IntClaim(env, "SLURM_NODEID"));
  TANDEM_ASSIGN_OR_RETURN(
      claims.nnodes,
      FirstIntClaim(env, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}));
  TANDEM_ASSIGN_OR_RETURN(claims.local_world_size,
                          SlurmLocalSize(env, claims.node_rank));
  // Rank 0 runs on the first node of the step. SLURM_LAUNCH_NODE_IPADDR is
  // where srun runs, which may be a login node.
  const bool one_node = claims.nnodes.has_value() && claims.nnodes->value == 1;
  claims.default_master_addr =
      one_node ? kLoopback
               : FirstHost(FirstSet(
                     env, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}));
  const std::string job = FirstSet(env, {"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job.empty()) {
    claims.default_master_port = PortOfJob(absl::StrCat(job, ".", step));
  }
  return claims;
}

absl::StatusOr<LaunchClaims> ClaimsOfEnvironment(const Environment& env) {
  TANDEM_ASSIGN_OR_RETURN(LaunchClaims torchrun, ClaimsOfTorchrun(env));
  if (torchrun.launcher == "torchrun" || torchrun.launcher == "tandem") {
    return torchrun;
  }
  TANDEM_ASSIGN_OR_RETURN(LaunchClaims task, ClaimsOfTasks(env));
  if (task.launcher == "none") return torchrun;
  return MergeClaims(std::move(task), torchrun);
}

absl::StatusOr<std::vector<int>> ParseTasksPerNode(absl::string_view text) {
  const absl::Status error = absl::InvalidArgumentError(absl::StrCat(
      "expected tasks per node such as 2(x3),1, got '", text, "'"));
  std::vector<int> counts;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    std::vector<absl::string_view> count_and_times =
        absl::StrSplit(part, absl::MaxSplits('(', 1));
    int count = 0;
    int times = 1;
    if (!absl::SimpleAtoi(count_and_times[0], &count)) return error;
    if (count_and_times.size() == 2) {
      absl::string_view rest = count_and_times[1];
      if (!absl::ConsumePrefix(&rest, "x") ||
          !absl::ConsumeSuffix(&rest, ")") || !absl::SimpleAtoi(rest, &times)) {
        return error;
      }
    }
    if (count < 0 || times < 1 || times > 1000000) return error;
    counts.insert(counts.end(), times, count);
  }
  return counts;
}

std::string FirstHost(absl::string_view nodelist) {
  std::string host;
  bool in_brackets = false;
  bool first_of_range = false;
  for (const char c : nodelist) {
    if (c == '[') {
      in_brackets = first_of_range = true;
    } else if (c == ']') {
      in_brackets = false;
    } else if (!in_brackets && c == ',') {
      break;
    } else if (in_brackets && (c == '-' || c == ',')) {
      first_of_range = false;
    } else if (!in_brackets || first_of_range) {
      host.push_back(c);
    }
  }
  return host;
}

}  // namespace tandem
