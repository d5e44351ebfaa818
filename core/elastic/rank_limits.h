// Rank limits: between how many ranks an elastic job may run, --min_ranks and
// --max_ranks; what torchrun's --nnodes=MIN:MAX is for nodes.

#ifndef TANDEM_CORE_ELASTIC_RANK_LIMITS_H_
#define TANDEM_CORE_ELASTIC_RANK_LIMITS_H_

#include <optional>

#include "absl/status/statusor.h"

namespace tandem {

// All ranks of a job together, counted as processes. 1 <= least <= most where
// the job is elastic.
struct RankLimits {
  int least = 0;  // 0: the number of ranks never changes
  int most = 0;

  bool elastic() const { return least > 0; }
};

// What asks for ranks, as the user gave it.
struct RankRequest {
  std::optional<int> min_ranks;
  std::optional<int> max_ranks;
  int nnodes = 1;
  int nproc_per_node = 1;
  int max_restarts = 0;
};

// Without min_ranks: not elastic. Without max_ranks: as many as all nodes can
// start, of whole nodes where they are several. InvalidArgument, naming the
// flags, for limits that contradict each other or what else was given.
absl::StatusOr<RankLimits> RankLimitsOf(const RankRequest& request);

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_RANK_LIMITS_H_
