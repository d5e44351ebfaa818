#include "core/elastic/rank_counts.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

absl::StatusOr<RankLimits> ResolveRankLimits(const RankRequest& request) {
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

absl::StatusOr<RankCounts> RankCounts::Of(const RankLimits& limits, int step,
                                          const Fits& fits) {
  std::vector<int> counts;
  absl::Status last_refusal;
  for (int ranks = limits.most; ranks >= limits.least; ranks -= step) {
    const absl::Status fit = fits == nullptr ? absl::OkStatus() : fits(ranks);
    if (!fit.ok() && ranks == limits.most) return fit;
    if (fit.ok()) {
      counts.push_back(ranks);
    } else {
      last_refusal = fit;
    }
  }
  if (counts.size() == 1 && !last_refusal.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min_ranks=", limits.least, ": of ", limits.least, " to ",
        limits.most, " ranks this job can run on ", limits.most, " alone (",
        std::string(last_refusal.message()),
        "): give a lower --min_ranks, or leave it out"));
  }
  std::reverse(counts.begin(), counts.end());
  return RankCounts(std::move(counts));
}

std::optional<int> RankCounts::AtMost(int ranks) const {
  const auto above = std::upper_bound(counts_.begin(), counts_.end(), ranks);
  if (above == counts_.begin()) return std::nullopt;
  return *(above - 1);
}

std::string RankCounts::ToString() const {
  if (counts_.size() == 1) return absl::StrCat(counts_.front());
  return absl::StrCat(absl::StrJoin(counts_.begin(), counts_.end() - 1, ", "),
                      " or ", counts_.back());
}

// With `most` at most.
std::string RankCountRule::SetRanks(int most, const std::string& why) {
  last_dead_.reset();  // fewer ranks have other numbers
  const std::optional<int> ranks = counts_.AtMost(most);
  if (!ranks.has_value()) {
    return absl::StrCat(why, ", but the job cannot run on fewer than ", ranks_,
                        " (it can on ", counts_.ToString(), ")");
  }
  const int before = ranks_;
  ranks_ = *ranks;
  return absl::StrCat("goes on with ", ranks_, ranks_ == 1 ? " rank" : " ranks",
                      " instead of ", before, ": ", why);
}

std::string RankCountRule::NoteEnd(const FailedAttempt& attempt) {
  if (attempt.started < ranks_) {
    return SetRanks(
        attempt.started,
        absl::StrCat("no more than ", attempt.started, " could be started"));
  }
  const bool progressed = attempt.progress != progress_;
  progress_ = attempt.progress;
  if (progressed && ranks_ < counts_.most()) {
    return SetRanks(counts_.most(), "a checkpoint has come since");
  }
  if (!progressed && attempt.first_dead && attempt.first_dead == last_dead_) {
    return SetRanks(
        ranks_ - 1,
        absl::StrCat("rank ", *attempt.first_dead,
                     " was the first to die in two attempts in a row, without "
                     "a checkpoint in between"));
  }
  last_dead_ = attempt.first_dead;
  return "";
}

}  // namespace tandem
