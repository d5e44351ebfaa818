// Launch claims: what flags, torchrun, Slurm or an MPI say about this process's
// place, each value with the words that it came from, so that a contradiction
// can name both sides. Pure: ResolveLaunch (resolve_launch.h) is what programs
// call.

#ifndef TANDEM_CORE_LAUNCH_CLAIMS_H_
#define TANDEM_CORE_LAUNCH_CLAIMS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/launch/launch.h"

namespace tandem {

template <typename T>
struct Claim {
  T value;
  std::string source;  // as the user knows it: "RANK=3", "--rank=3"
};

struct LaunchClaims {
  std::string launcher = "none";  // as in Launch
  std::optional<Claim<int>> world_size;
  std::optional<Claim<int>> rank;
  std::optional<Claim<int>> local_world_size;
  std::optional<Claim<int>> local_rank;
  std::optional<Claim<int>> nnodes;
  std::optional<Claim<int>> node_rank;
  std::optional<Claim<std::string>> master_addr;
  std::optional<Claim<int>> master_port;
  std::optional<Claim<std::string>> store_file;  // of --dist_url=file://
  // Where to meet when nobody says so; empty or 0 when that is not known.
  std::string default_master_addr;
  int default_master_port = 0;
  bool served_by_launcher = false;
  std::string key_prefix;
  // Ranks may be on several nodes, and nothing says on how many.
  bool hides_nodes = false;
};

// Both together. InvalidArgument, naming both sources, where they disagree.
// Fields that are not claims come from `base`.
absl::StatusOr<LaunchClaims> MergeClaims(LaunchClaims base,
                                         const LaunchClaims& more);

// Works out what was not claimed and checks that everything fits.
// InvalidArgument, naming the sources, when something is missing or does not.
// No claims at all: one rank.
absl::StatusOr<Launch> CompleteClaims(const LaunchClaims& claims);

// Where ranks meet, if `claims` say where; InvalidArgument that begins with
// `who` ("rank 0 of 2") if not.
absl::StatusOr<Rendezvous> RendezvousOfClaims(const LaunchClaims& claims,
                                              const std::string& who);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_CLAIMS_H_
