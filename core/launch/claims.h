// Launch claims: what flags, torchrun, Slurm or an MPI say about this process's
// place, each value with the words that it came from, so that a contradiction
// can name both sides. Pure: ResolveLaunch (resolve_launch.h) is what programs
// call.

#ifndef TANDEM_CORE_LAUNCH_CLAIMS_H_
#define TANDEM_CORE_LAUNCH_CLAIMS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/environment.h"
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

// Variable claims: what single environment variables say of a launch. Pure.

// The claim that `name` makes in `env`, if any.
absl::StatusOr<std::optional<Claim<int>>> IntClaim(const Environment& env,
                                                   const std::string& name);
// The claim of the first of `names` that is set.
absl::StatusOr<std::optional<Claim<int>>> FirstIntClaim(
    const Environment& env, const std::vector<std::string>& names);

// The claim of a variable that names a host.
std::optional<Claim<std::string>> HostClaim(const Environment& env,
                                            const std::string& name);

// The value of the first of `names` that is set; "" where none is.
std::string FirstSet(const Environment& env,
                     const std::vector<std::string>& names);

// A port that all ranks of one job compute alike, from what they all know of
// it: 20000 + FNV-1a(job) mod 10000, below Linux's ephemeral ports.
int PortOfJob(absl::string_view job);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_CLAIMS_H_
