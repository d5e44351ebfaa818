#include "core/launch/claims.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/launch/dist_url.h"

namespace tandem {
namespace {

constexpr absl::string_view kProcessesNotNodes =
    "the world size counts processes, not nodes; for the number of nodes use "
    "--nnodes and --node_rank";

template <typename T>
absl::Status Merge(const std::optional<Claim<T>>& more,
                   std::optional<Claim<T>>& base) {
  if (!more.has_value()) return absl::OkStatus();
  if (base.has_value() && base->value != more->value) {
    return absl::InvalidArgumentError(
        absl::StrCat(base->source, " and ", more->source,
                     " disagree; leave one of them out or make them equal"));
  }
  if (!base.has_value()) base = more;
  return absl::OkStatus();
}

// The claim's words, or those for a value that was worked out.
std::string ClaimSource(const std::optional<Claim<int>>& claim,
                        absl::string_view name, int value) {
  if (claim.has_value()) return claim->source;
  return absl::StrCat(name, " ", value);
}

absl::Status CheckBelow(const std::string& index, int value,
                        const std::string& count, int size) {
  if (size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " must be at least 1"));
  }
  if (0 <= value && value < size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(index, " does not fit ", count, ": expected 0 to ", size - 1,
                   "; ranks and node ranks count from 0"));
}

absl::Status CheckRankAndWorldSize(const LaunchClaims& claims) {
  if (!claims.rank.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        claims.world_size->source,
        " is given without a rank; give --rank (or RANK) too, or "
        "--nproc_per_node to start several ranks here, or neither for one"));
  }
  if (!claims.world_size.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        claims.rank->source,
        " is given without a world size; give --world_size (or WORLD_SIZE) "
        "too, or neither for one rank"));
  }
  return CheckBelow(claims.rank->source, claims.rank->value,
                    claims.world_size->source, claims.world_size->value);
}

// One rank that nobody started as a part of anything.
absl::StatusOr<Launch> AloneOrIncomplete(const LaunchClaims& claims) {
  for (const auto& claim : {claims.local_rank, claims.local_world_size,
                            claims.node_rank, claims.nnodes}) {
    if (!claim.has_value()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        claim->source,
        " is given without a rank and a world size; give --rank and "
        "--world_size (or RANK and WORLD_SIZE), or --nproc_per_node to start "
        "ranks here"));
  }
  return Launch{};
}

// How many ranks share this node.
absl::StatusOr<int> LocalWorldSize(const LaunchClaims& claims) {
  const Claim<int>& world = *claims.world_size;
  if (claims.local_world_size.has_value()) {
    const Claim<int>& local = *claims.local_world_size;
    if (local.value < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(local.source, " must be at least 1"));
    }
    if (local.value > world.value) {
      return absl::InvalidArgumentError(
          absl::StrCat(world.source, " is less than ", local.source, ": ",
                       kProcessesNotNodes));
    }
    return local.value;
  }
  if (!claims.nnodes.has_value() && claims.hides_nodes && world.value > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        world.source, " with ", claims.rank->source,
        " does not tell how many of these ranks run on this node: give "
        "--nproc_per_node (or LOCAL_WORLD_SIZE)"));
  }
  if (!claims.nnodes.has_value()) return world.value;
  if (claims.nnodes->value < 1 || world.value % claims.nnodes->value != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(world.source, " ranks cannot be shared out evenly over ",
                     claims.nnodes->source, " nodes: ", kProcessesNotNodes));
  }
  return world.value / claims.nnodes->value;
}

// Fits `launch` together, with ranks and sizes already in it.
absl::Status CheckPlace(const LaunchClaims& claims, const Launch& launch) {
  const std::string local_rank =
      ClaimSource(claims.local_rank, "local rank", launch.local_rank);
  const std::string local_size = ClaimSource(
      claims.local_world_size, "local world size", launch.local_world_size);
  const std::string node_rank =
      ClaimSource(claims.node_rank, "node rank", launch.node_rank);
  const std::string nnodes =
      ClaimSource(claims.nnodes, "number of nodes", launch.nnodes);
  TANDEM_RETURN_IF_ERROR(CheckBelow(local_rank, launch.local_rank, local_size,
                                    launch.local_world_size));
  TANDEM_RETURN_IF_ERROR(
      CheckBelow(node_rank, launch.node_rank, nnodes, launch.nnodes));
  if (launch.nnodes > launch.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(claims.world_size->source,
                                                   " is less than ", nnodes,
                                                   ": ", kProcessesNotNodes));
  }
  // Slurm can deal ranks out to nodes in turn, and its nodes may differ.
  if (launch.launcher == "slurm" ||
      GridWorldSize(launch.nnodes, launch.local_world_size) !=
          launch.world_size) {
    return absl::OkStatus();
  }
  const int expected =
      GridRank(launch.node_rank, launch.local_world_size, launch.local_rank);
  if (expected == launch.rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      claims.rank->source, " does not fit ", node_rank, ", ", local_size,
      " and ", local_rank, ", which make rank ", expected,
      " (rank = node_rank * nproc_per_node + local_rank)"));
}

}  // namespace

absl::StatusOr<LaunchClaims> MergeClaims(LaunchClaims base,
                                         const LaunchClaims& more) {
  TANDEM_RETURN_IF_ERROR(Merge(more.world_size, base.world_size));
  TANDEM_RETURN_IF_ERROR(Merge(more.rank, base.rank));
  TANDEM_RETURN_IF_ERROR(Merge(more.local_world_size, base.local_world_size));
  TANDEM_RETURN_IF_ERROR(Merge(more.local_rank, base.local_rank));
  TANDEM_RETURN_IF_ERROR(Merge(more.nnodes, base.nnodes));
  TANDEM_RETURN_IF_ERROR(Merge(more.node_rank, base.node_rank));
  TANDEM_RETURN_IF_ERROR(Merge(more.master_addr, base.master_addr));
  TANDEM_RETURN_IF_ERROR(Merge(more.master_port, base.master_port));
  TANDEM_RETURN_IF_ERROR(Merge(more.store_file, base.store_file));
  return base;
}

absl::StatusOr<Rendezvous> RendezvousOfClaims(const LaunchClaims& claims,
                                              const std::string& who) {
  Rendezvous result;
  if (claims.store_file.has_value()) {
    result.kind = Rendezvous::Kind::kFile;
    result.path = claims.store_file->value;
    return result;
  }
  result.kind = Rendezvous::Kind::kTcp;
  result.host = claims.master_addr.has_value() ? claims.master_addr->value
                                               : claims.default_master_addr;
  result.port = claims.master_port.has_value() ? claims.master_port->value
                                               : claims.default_master_port;
  result.served_by_launcher = claims.served_by_launcher;
  result.key_prefix = claims.key_prefix;
  if (!result.host.empty() && result.port != 0) return result;
  return absl::InvalidArgumentError(
      absl::StrCat(who, " does not know where to meet the other ranks: ",
                   result.host.empty() ? "--master_addr (or MASTER_ADDR) " : "",
                   result.host.empty() && result.port == 0 ? "and " : "",
                   result.port == 0 ? "--master_port (or MASTER_PORT) " : "",
                   "missing; --dist_url=tcp://HOST:PORT gives both"));
}

absl::StatusOr<Launch> CompleteClaims(const LaunchClaims& claims) {
  if (!claims.rank.has_value() && !claims.world_size.has_value()) {
    return AloneOrIncomplete(claims);
  }
  TANDEM_RETURN_IF_ERROR(CheckRankAndWorldSize(claims));
  Launch launch;
  launch.launcher = claims.launcher;
  launch.rank = claims.rank->value;
  launch.world_size = claims.world_size->value;
  TANDEM_ASSIGN_OR_RETURN(launch.local_world_size, LocalWorldSize(claims));
  const int nodes_below =
      (launch.world_size - 1) / launch.local_world_size;  // but the last
  launch.nnodes =
      claims.nnodes.has_value() ? claims.nnodes->value : nodes_below + 1;
  launch.node_rank = claims.node_rank.has_value()
                         ? claims.node_rank->value
                         : launch.rank / launch.local_world_size;
  launch.local_rank = claims.local_rank.has_value()
                          ? claims.local_rank->value
                          : launch.rank % launch.local_world_size;
  TANDEM_RETURN_IF_ERROR(CheckPlace(claims, launch));
  if (launch.world_size == 1) return launch;
  TANDEM_ASSIGN_OR_RETURN(
      launch.rendezvous,
      RendezvousOfClaims(claims, absl::StrCat("rank ", launch.rank, " of ",
                                              launch.world_size)));
  return launch;
}

absl::StatusOr<std::optional<Claim<int>>> IntClaim(const Environment& env,
                                                   const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<int> value, env.GetInt(name));
  if (!value.has_value()) return std::optional<Claim<int>>();
  return std::optional<Claim<int>>({*value, absl::StrCat(name, "=", *value)});
}

absl::StatusOr<std::optional<Claim<int>>> FirstIntClaim(
    const Environment& env, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    TANDEM_ASSIGN_OR_RETURN(auto claim, IntClaim(env, name));
    if (claim.has_value()) return claim;
  }
  return std::optional<Claim<int>>();
}

std::optional<Claim<std::string>> HostClaim(const Environment& env,
                                            const std::string& name) {
  const std::optional<std::string> value = env.Get(name);
  if (!value.has_value()) return std::nullopt;
  return Claim<std::string>{std::string(WithoutBrackets(*value)),
                            absl::StrCat(name, "=", *value)};
}

std::string FirstSet(const Environment& env,
                     const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const auto value = env.Get(name); value.has_value()) return *value;
  }
  return "";
}

int PortOfJob(absl::string_view job) {
  uint32_t hash = 2166136261u;
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return 20000 + static_cast<int>(hash % 10000);
}

}  // namespace tandem
