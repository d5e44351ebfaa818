#include "core/elastic/rank_limits.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// "--nproc_per_node=2 on 3 nodes can start 6 ranks".
std::string DescribeStartable(const RankRequest& request, int all) {
  return absl::StrCat("--nproc_per_node=", request.nproc_per_node, " on ",
                      request.nnodes, request.nnodes == 1 ? " node" : " nodes",
                      " can start ", all, all == 1 ? " rank" : " ranks");
}

absl::Status CheckGiven(const RankRequest& request) {
  if (!request.min_ranks.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_ranks=", *request.max_ranks,
                     " is given without --min_ranks: say with how few ranks "
                     "the job may go on"));
  }
  if (*request.min_ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min_ranks=", *request.min_ranks, " must be at least 1"));
  }
  if (request.max_restarts > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--min_ranks=", *request.min_ranks,
                   " needs --max_restarts=N: ranks become fewer or more when "
                   "they are started again"));
}

}  // namespace

absl::StatusOr<RankLimits> RankLimitsOf(const RankRequest& request) {
  if (!request.min_ranks.has_value() && !request.max_ranks.has_value()) {
    return RankLimits();
  }
  const absl::Status given = CheckGiven(request);
  if (!given.ok()) return given;
  const int all = request.nnodes * request.nproc_per_node;
  const int asked = request.max_ranks.value_or(all);
  if (asked > all) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_ranks=", asked,
                     " is too many: ", DescribeStartable(request, all)));
  }
  // A node of several takes part with all of its ranks, or not at all.
  const int most = request.nnodes == 1 ? asked
                                       : asked / request.nproc_per_node *
                                             request.nproc_per_node;
  if (*request.min_ranks <= most) return RankLimits{*request.min_ranks, most};
  if (request.max_ranks.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min_ranks=", *request.min_ranks, " is more than --max_ranks=", asked,
        most == asked ? "" : absl::StrCat(" has in whole nodes, ", most)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--min_ranks=", *request.min_ranks,
                   " is too many: ", DescribeStartable(request, all)));
}

}  // namespace tandem
