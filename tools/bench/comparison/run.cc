#include "tools/bench/comparison/run.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// Only a process that fails may: other losses are an error of whoever has them.
bool IsItsOwnFailure(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

class CaseRun {
 public:
  CaseRun(const Case& bench, KnownLosses losses,
          const ComparisonOptions& options)
      : bench_(bench), options_(options), losses_(std::move(losses)) {}

  absl::StatusOr<CaseResult> Run(const std::vector<Peer>& peers,
                                 FurtherMeasurements further) {
    TANDEM_RETURN_IF_ERROR(WriteInputs(bench_, options_));
    TANDEM_RETURN_IF_ERROR(Start(
        {"tandem", Program::kTandem, bench_.ours, /*may_fail=*/false}, true));
    for (const Peer& peer : peers) {
      TANDEM_RETURN_IF_ERROR(Start(peer, /*records=*/false));
    }
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench_.name);
    TANDEM_RETURN_IF_ERROR(Measure(further));
    CaseResult result;
    result.bench = bench_;
    result.ours = contenders_.front().TakeResult();
    for (size_t i = 1; i < contenders_.size(); ++i) {
      result.peers.push_back(contenders_[i].TakeResult());
    }
    return result;
  }

 private:
  absl::Status Start(const Peer& who, bool records) {
    contenders_.push_back(
        StartContender(who.name, who.program, bench_, options_));
    Contender& contender = contenders_.back();
    absl::Status started = contender.status();
    if (started.ok()) {
      started = contender.Choose(who.settings, bench_.workload.compared_steps,
                                 records, losses_);
    }
    return who.may_fail && IsItsOwnFailure(started) ? absl::OkStatus()
                                                    : started;
  }

  absl::Status Measure(FurtherMeasurements further) {
    std::vector<Contender*> all;
    for (Contender& each : contenders_) all.push_back(&each);
    const int64_t steps = options_.StepsOf(bench_.workload);
    TANDEM_RETURN_IF_ERROR(
        TakeTurns(options_.rounds, all,
                  [&](Contender& each) { return each.MeasureStep(steps); }));
    TANDEM_RETURN_IF_ERROR(TakeTurns(
        1, all, [](Contender& each) { return each.MeasureMemory(); }));
    return further(all);
  }

  const Case& bench_;
  const ComparisonOptions& options_;
  KnownLosses losses_;
  std::vector<Contender> contenders_;  // tandem's first
};

}  // namespace

std::vector<Peer> PeersOfRecipes(const std::vector<std::string>& recipes,
                                 Program program,
                                 const std::vector<std::string>& may_fail) {
  std::vector<Peer> peers;
  for (const std::string& recipe : recipes) {
    peers.push_back({recipe, program, WithRecipe({Setting()}, recipe),
                     absl::c_linear_search(may_fail, recipe)});
  }
  return peers;
}

absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options,
                                   FurtherMeasurements further) {
  TANDEM_ASSIGN_OR_RETURN(const ComparisonOptions own,
                          InOwnFolder(options, bench.name));
  return CaseRun(bench, std::move(losses), own).Run(peers, further);
}

absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options) {
  return RunCase(
      bench, peers, std::move(losses), options,
      [](const std::vector<Contender*>&) { return absl::OkStatus(); });
}

}  // namespace tandem
