#include "core/launch/resolve_launch.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/elastic/rank_counts.h"
#include "core/launch/claims.h"
#include "core/launch/dist_url.h"
#include "core/launch/pod_settings.h"
#include "core/launch/sources.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

std::optional<Claim<int>> FlagClaim(absl::string_view name,
                                    std::optional<int> value) {
  if (!value.has_value()) return std::nullopt;
  return Claim<int>{*value, absl::StrCat("--", name, "=", *value)};
}

// --dist_url as claims about the master or the store's file.
absl::StatusOr<LaunchClaims> ClaimsOfDistUrl(
    const std::optional<std::string>& text) {
  LaunchClaims claims;
  if (!text.has_value()) return claims;
  TANDEM_ASSIGN_OR_RETURN(const DistUrl url, ParseDistUrl(*text));
  const std::string source = absl::StrCat("--dist_url=", *text);
  if (url.kind == DistUrl::Kind::kTcp) {
    claims.master_addr = Claim<std::string>{url.host, source};
    if (url.port != 0) claims.master_port = Claim<int>{url.port, source};
  } else if (url.kind == DistUrl::Kind::kFile) {
    claims.store_file = Claim<std::string>{url.path, source};
  }
  return claims;
}

// The flags' claims, each with its flag as the source. InvalidArgument for a
// --dist_url that is none, and for flags that contradict it.
absl::StatusOr<LaunchClaims> ClaimsOfFlags(const LaunchSettings& flags) {
  LaunchClaims claims;
  if (flags.rank.has_value()) claims.launcher = "flags";
  claims.world_size = FlagClaim("world_size", flags.world_size);
  claims.rank = FlagClaim("rank", flags.rank);
  claims.local_rank = FlagClaim("local_rank", flags.local_rank);
  claims.local_world_size = FlagClaim("nproc_per_node", flags.nproc_per_node);
  claims.nnodes = FlagClaim("nnodes", flags.nnodes);
  claims.node_rank = FlagClaim("node_rank", flags.node_rank);
  if (flags.master_port.value_or(0) != 0) {
    claims.master_port = FlagClaim("master_port", flags.master_port);
  }
  if (flags.master_addr.has_value()) {
    claims.master_addr =
        Claim<std::string>{std::string(WithoutBrackets(*flags.master_addr)),
                           absl::StrCat("--master_addr=", *flags.master_addr)};
  }
  TANDEM_ASSIGN_OR_RETURN(const LaunchClaims url,
                          ClaimsOfDistUrl(flags.dist_url));
  return MergeClaims(claims, url);
}

absl::Status CheckPort(const std::optional<Claim<int>>& port) {
  if (!port.has_value() || (0 < port->value && port->value <= 65535)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(port->source, " is no port: expected 1 to 65535"));
}

// One task of srun or mpirun is but a place to start from: `srun --pty bash`.
bool IsLoneTask(const LaunchClaims& claims) {
  return StartsTasks(claims.launcher) && claims.world_size.has_value() &&
         claims.world_size->value == 1;
}

// By hand a rank's place stands whole in the environment. What is there may
// count pods or nodes, for whoever starts several in each.
absl::Status CheckCountsProcesses(const LaunchSettings& flags,
                                  const LaunchClaims& from_env) {
  if (from_env.launcher != "environment" || from_env.local_rank.has_value() ||
      from_env.local_world_size.has_value() ||
      !from_env.world_size.has_value() ||
      flags.nproc_per_node.value_or(1) <= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(from_env.rank->source, " and ", from_env.world_size->source,
                   " say that this process is one rank, --nproc_per_node=",
                   *flags.nproc_per_node,
                   " that it is to start ranks: leave one of them out. They "
                   "count processes, not nodes; where something (PyTorchJob, "
                   "say) has set them to count pods, unset them, and give "
                   "--nnodes and --node_rank"));
}

int ValueOr(const std::optional<Claim<int>>& claim, int otherwise) {
  return claim.has_value() ? claim->value : otherwise;
}

absl::Status CheckNoRank(const LaunchClaims& claims, absl::string_view why) {
  for (const auto& claim : {claims.rank, claims.local_rank}) {
    if (!claim.has_value()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        claim->source, " and ", why,
        " contradict each other: the first says that this process is one rank,"
        " the second that it is to start ranks; leave one of them out (ranks"
        " count processes; nodes are --nnodes and --node_rank)"));
  }
  return absl::OkStatus();
}

absl::Status CheckNode(const LaunchClaims& claims, int nnodes) {
  if (nnodes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(claims.nnodes->source, " must be at least 1"));
  }
  const std::string of =
      claims.nnodes.has_value() ? claims.nnodes->source : "--nnodes=1";
  if (!claims.node_rank.has_value()) {
    if (nnodes == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(of, " is given without --node_rank; give 0 to ",
                     nnodes - 1, ", another on each node"));
  }
  const int node = claims.node_rank->value;
  if (0 <= node && node < nnodes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(claims.node_rank->source, " does not fit ", of,
                   ": expected 0 to ", nnodes - 1));
}

absl::Status CheckSizes(const LaunchClaims& claims, int nnodes, int nproc) {
  const std::string local = claims.local_world_size.has_value()
                                ? claims.local_world_size->source
                                : "--nproc_per_node=1";
  if (nproc < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(local, " must be at least 1"));
  }
  const int64_t world = static_cast<int64_t>(nnodes) * nproc;
  if (world > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        local, " on ", nnodes, " nodes makes ", world, " ranks: too many"));
  }
  const int claimed = ValueOr(claims.world_size, static_cast<int>(world));
  if (claimed == world) return absl::OkStatus();
  std::string hint =
      claimed < nproc || claims.nnodes.has_value()
          ? "it counts processes, not nodes: leave it out and say --nnodes"
          : "for more nodes say --nnodes and --node_rank";
  return absl::InvalidArgumentError(
      absl::StrCat(claims.world_size->source, " and ", local, " on ", nnodes,
                   nnodes == 1 ? " node" : " nodes", " (", world,
                   " ranks) contradict each other; ", hint));
}

absl::StatusOr<Rendezvous> RendezvousOfNodes(LaunchClaims claims, int nnodes) {
  claims.served_by_launcher = true;
  claims.default_master_port = kDefaultMasterPort;
  if (nnodes == 1) claims.default_master_addr = "127.0.0.1";
  TANDEM_ASSIGN_OR_RETURN(
      Rendezvous result,
      RendezvousOfClaims(claims, absl::StrCat("a job of ", nnodes, " nodes")));
  const bool any_port = nnodes == 1 && !claims.master_port.has_value();
  if (result.kind == Rendezvous::Kind::kTcp && any_port) result.port = 0;
  return result;
}

// What asks for ranks to be started.
std::string SourceOfLauncher(const LaunchClaims& claims, int max_restarts) {
  if (claims.local_world_size.has_value()) {
    return claims.local_world_size->source;
  }
  return claims.nnodes.has_value()
             ? claims.nnodes->source
             : absl::StrCat("--max_restarts=", max_restarts);
}

absl::StatusOr<LaunchPlan> PlanLauncher(const LaunchClaims& claims,
                                        const LaunchSettings& flags,
                                        int max_restarts) {
  TANDEM_RETURN_IF_ERROR(
      CheckNoRank(claims, SourceOfLauncher(claims, max_restarts)));
  const int nnodes = ValueOr(claims.nnodes, 1);
  const int nproc = ValueOr(claims.local_world_size, 1);
  TANDEM_RETURN_IF_ERROR(CheckNode(claims, nnodes));
  TANDEM_RETURN_IF_ERROR(CheckSizes(claims, nnodes, nproc));
  LaunchPlan plan;
  TANDEM_ASSIGN_OR_RETURN(
      plan.limits, ResolveRankLimits({flags.min_ranks, flags.max_ranks, nnodes,
                                      nproc, max_restarts}));
  if (nnodes == 1 && nproc == 1 && max_restarts == 0) return plan;
  plan.is_launcher = true;
  plan.restarts.most = max_restarts;
  plan.launch.launcher = "tandem";
  plan.launch.nnodes = nnodes;
  plan.launch.node_rank = ValueOr(claims.node_rank, 0);
  plan.launch.local_world_size = nproc;
  plan.launch.world_size = GridWorldSize(nnodes, nproc);
  plan.launch.rank = GridRank(plan.launch.node_rank, nproc, 0);
  if (plan.limits.elastic()) {
    plan.launch.world_size = plan.limits.most;
    if (nnodes == 1) plan.launch.local_world_size = plan.limits.most;
  }
  TANDEM_ASSIGN_OR_RETURN(plan.launch.rendezvous,
                          RendezvousOfNodes(claims, nnodes));
  if (max_restarts > 0 &&
      plan.launch.rendezvous.kind == Rendezvous::Kind::kFile) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_restarts=", max_restarts, " and ", claims.store_file->source,
        ": a store in a file is of one attempt; leave --dist_url "
        "out, or give tcp://HOST:PORT"));
  }
  return plan;
}

// How often this process starts ranks again; 0 where it is a rank of a launcher
// that does.
absl::StatusOr<int> MaxRestarts(const LaunchSettings& flags,
                                const LaunchClaims& from_env) {
  const int given = flags.max_restarts.value_or(0);
  if (given < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_restarts=", given, " must be at least 0"));
  }
  if (given == 0 || from_env.launcher == "tandem") return 0;
  if (from_env.rank.has_value() && !IsLoneTask(from_env)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_restarts=", given, " is for tandem's own launcher, but ",
        from_env.launcher, " has started this rank (", from_env.rank->source,
        "): have ", from_env.launcher, " restart the job"));
  }
  if (flags.rank.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_restarts=", given,
                     " is for a launcher of ranks, but --rank=", *flags.rank,
                     " says that this process is one: give --nproc_per_node, "
                     "and leave --rank out"));
  }
  return given;
}

bool IsElastic(const LaunchSettings& flags) {
  return flags.min_ranks.has_value() || flags.max_ranks.has_value();
}

// The launcher alone knows how many ranks an elastic job has now.
LaunchSettings ForProcess(LaunchSettings flags, const LaunchClaims& from_env) {
  if (!IsElastic(flags) || from_env.launcher != "tandem") return flags;
  flags.nnodes.reset();
  flags.node_rank.reset();
  flags.nproc_per_node.reset();
  return flags;
}

absl::Status CheckEnvUrl(const LaunchSettings& flags,
                         const LaunchClaims& claims) {
  if (flags.dist_url != "env://" || claims.rank.has_value()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--dist_url=env:// asks for RANK, WORLD_SIZE, MASTER_ADDR and "
      "MASTER_PORT, but RANK is not set; start under a launcher, or give "
      "--nproc_per_node");
}

// Torchrun's own store listens on all interfaces, so that 0.0.0.0 works there,
// on one host.
absl::Status CheckStoreAddress(const Launch& launch) {
  const Rendezvous& where = launch.rendezvous;
  const bool is_torchruns =
      launch.launcher == "torchrun" && where.served_by_launcher;
  if (where.kind != Rendezvous::Kind::kTcp || is_torchruns) {
    return absl::OkStatus();
  }
  return CheckOneInterface(where.host);
}

absl::StatusOr<LaunchPlan> MakePlan(const LaunchSettings& flags,
                                    LaunchClaims from_env,
                                    const Environment& env) {
  TANDEM_RETURN_IF_ERROR(CheckCountsProcesses(flags, from_env));
  TANDEM_ASSIGN_OR_RETURN(const LaunchClaims from_flags,
                          ClaimsOfFlags(ForProcess(flags, from_env)));
  TANDEM_ASSIGN_OR_RETURN(const int max_restarts, MaxRestarts(flags, from_env));
  if (IsElastic(flags) && max_restarts == 0 && from_env.launcher != "tandem") {
    return ResolveRankLimits({flags.min_ranks, flags.max_ranks}).status();
  }
  const bool asks_for_ranks =
      flags.nproc_per_node.has_value() || max_restarts > 0 ||
      (flags.nnodes.value_or(1) != 1 && !flags.rank.has_value());
  if (asks_for_ranks && IsLoneTask(from_env)) {
    TANDEM_ASSIGN_OR_RETURN(from_env, ClaimsOfTorchrun(env));
  }
  const bool is_rank_already = from_env.rank.has_value();
  TANDEM_ASSIGN_OR_RETURN(LaunchClaims claims,
                          MergeClaims(from_env, from_flags));
  if (claims.launcher == "none") claims.launcher = from_flags.launcher;
  TANDEM_RETURN_IF_ERROR(CheckPort(claims.master_port));
  TANDEM_RETURN_IF_ERROR(CheckPodsMeet(claims, env));
  if (asks_for_ranks && !is_rank_already) {
    return PlanLauncher(claims, flags, max_restarts);
  }
  TANDEM_RETURN_IF_ERROR(CheckEnvUrl(flags, claims));
  LaunchPlan plan;
  TANDEM_ASSIGN_OR_RETURN(plan.launch, CompleteClaims(claims));
  return plan;
}

}  // namespace

absl::StatusOr<LaunchPlan> ResolveLaunch(const LaunchSettings& flags,
                                         const Environment& env) {
  TANDEM_ASSIGN_OR_RETURN(const LaunchClaims from_env,
                          ClaimsOfEnvironment(env));
  TANDEM_ASSIGN_OR_RETURN(const PodSettings pod,
                          ReadPodSettings(flags, from_env, env));
  absl::StatusOr<LaunchPlan> plan = MakePlan(pod.flags, pod.from_env, env);
  if (plan.ok()) {
    const absl::Status address = CheckStoreAddress(plan->launch);
    if (!address.ok()) plan = address;
  }
  if (plan.ok() || pod.source.empty()) return plan;
  return absl::Status(
      plan.status().code(),
      absl::StrCat(plan.status().message(), " (the environment's ", pod.source,
                   " stand for the flags that are not given)"));
}

}  // namespace tandem
