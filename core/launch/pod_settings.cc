#include "core/launch/pod_settings.h"

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/launch/claims.h"

namespace tandem {
namespace {

constexpr char kNodes[] = "PET_NNODES";
constexpr char kNodeRank[] = "PET_NODE_RANK";
constexpr char kRanksPerNode[] = "PET_NPROC_PER_NODE";

// What is said of a pod.
struct Pod {
  std::optional<int> nnodes;
  std::optional<int> node_rank;
  std::optional<int> nproc_per_node;
};

// "2", or "2:2"; nothing for another text ("1:4", "auto").
std::optional<int> NumberIn(const std::string& text) {
  const std::vector<std::string> ends = absl::StrSplit(text, ':');
  int least = 0;
  int most = 0;
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &least) ||
      !absl::SimpleAtoi(ends.back(), &most) || least != most) {
    return std::nullopt;
  }
  return least;
}

// `flag`, else what the variable says, which is noted in `read`.
absl::StatusOr<std::optional<int>> FlagOr(const std::optional<int>& flag,
                                          const Environment& env,
                                          const std::string& name,
                                          const std::string& remedy,
                                          std::vector<std::string>* read) {
  const std::optional<std::string> text = env.Get(name);
  if (flag.has_value() || !text.has_value()) return flag;
  const std::optional<int> number = NumberIn(*text);
  const std::string source = absl::StrCat(name, "=", *text);
  if (!number.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source,
                     " is for torchrun, but this is tandem's launcher, "
                     "which takes a number: ",
                     remedy));
  }
  read->push_back(source);
  return number;
}

absl::StatusOr<Pod> ReadPod(const LaunchSettings& flags, bool is_one_rank,
                            const Environment& env,
                            std::vector<std::string>* read) {
  Pod pod;
  TANDEM_ASSIGN_OR_RETURN(
      pod.nnodes, FlagOr(flags.nnodes, env, kNodes,
                         "give --nnodes, and for an elastic job --min_ranks "
                         "and --max_ranks",
                         read));
  TANDEM_ASSIGN_OR_RETURN(pod.node_rank, FlagOr(flags.node_rank, env, kNodeRank,
                                                "give --node_rank", read));
  // A rank that PyTorch's scripts would take as such is one where torchrun is
  // left to count GPUs.
  if (is_one_rank && !NumberIn(FirstSet(env, {kRanksPerNode})).has_value()) {
    pod.nproc_per_node = flags.nproc_per_node;
    return pod;
  }
  TANDEM_ASSIGN_OR_RETURN(pod.nproc_per_node,
                          FlagOr(flags.nproc_per_node, env, kRanksPerNode,
                                 "give --nproc_per_node", read));
  return pod;
}

bool IsByHand(const LaunchClaims& from_env) {
  if (from_env.launcher == "none") return true;
  return from_env.launcher == "environment" &&
         !from_env.local_rank.has_value() &&
         !from_env.local_world_size.has_value();
}

// RANK is a pod's number, which the operator gives twice.
absl::Status CheckRankIsPod(const LaunchClaims& from_env, int node_rank) {
  if (from_env.rank->value == node_rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(from_env.rank->source, " and ", kNodeRank, "=", node_rank,
                   " disagree on which pod this is; leave one of them out"));
}

// False only where it is known to be one.
bool MayBeSeveralPods(const LaunchClaims& claims, const Environment& env) {
  if (!IsByHand(claims) || !env.Get("KUBERNETES_SERVICE_HOST").has_value()) {
    return false;
  }
  if (claims.nnodes.has_value()) return claims.nnodes->value > 1;
  return claims.launcher == "environment" && claims.world_size.has_value() &&
         claims.world_size->value > 1;
}

// For a launcher of the pod's ranks.
absl::Status Fill(const Pod& pod, const Environment& env,
                  PodSettings* settings) {
  LaunchSettings& flags = settings->flags;
  flags.nnodes = pod.nnodes;
  flags.node_rank = pod.node_rank;
  flags.nproc_per_node = pod.nproc_per_node;
  // A single pod's ranks meet within it.
  if (pod.nnodes.value_or(1) == 1 || flags.dist_url.has_value()) {
    return absl::OkStatus();
  }
  if (!flags.master_addr.has_value() &&
      !settings->from_env.master_addr.has_value()) {
    flags.master_addr = env.Get("PET_MASTER_ADDR");
  }
  if (!flags.master_port.has_value() &&
      !settings->from_env.master_port.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(flags.master_port, env.GetInt("PET_MASTER_PORT"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PodSettings> ReadPodSettings(const LaunchSettings& flags,
                                            const LaunchClaims& from_env,
                                            const Environment& env) {
  PodSettings settings = {flags, from_env, ""};
  const bool has_rank = from_env.rank.has_value();
  if (!IsByHand(from_env) || flags.rank.has_value() ||
      FirstSet(env, {kNodes, kNodeRank, kRanksPerNode}).empty() ||
      (has_rank && FirstSet(env, {kNodeRank}).empty())) {
    return settings;
  }
  std::vector<std::string> read;
  TANDEM_ASSIGN_OR_RETURN(const Pod pod, ReadPod(flags, has_rank, env, &read));
  settings.source = absl::StrJoin(read, ", ");
  if (has_rank) {
    TANDEM_RETURN_IF_ERROR(CheckRankIsPod(from_env, pod.node_rank.value_or(0)));
    const bool starts_ranks = pod.nproc_per_node.value_or(1) > 1 ||
                              flags.max_restarts.value_or(0) > 0;
    if (!starts_ranks) {
      TANDEM_ASSIGN_OR_RETURN(settings.from_env.node_rank,
                              IntClaim(env, kNodeRank));
      if (pod.nnodes.has_value()) {
        settings.from_env.nnodes =
            Claim<int>{*pod.nnodes, absl::StrCat(kNodes, "=", *pod.nnodes)};
      }
      return settings;
    }
    settings.from_env.launcher = "none";
    settings.from_env.rank.reset();
    settings.from_env.world_size.reset();
  }
  TANDEM_RETURN_IF_ERROR(Fill(pod, env, &settings));
  return settings;
}

absl::Status CheckPodsMeet(const LaunchClaims& claims, const Environment& env) {
  if (!MayBeSeveralPods(claims, env) || !claims.master_addr.has_value() ||
      !absl::EqualsIgnoreCase(claims.master_addr->value, "localhost") ||
      !absl::StartsWith(claims.master_addr->source, "MASTER_ADDR=")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      claims.master_addr->source,
      " is out of the reach of ranks in other pods of Kubernetes: set "
      "MASTER_ADDR to this pod's address (hostname -i), or to 127.0.0.1 where "
      "all ranks are in this pod"));
}

}  // namespace tandem
