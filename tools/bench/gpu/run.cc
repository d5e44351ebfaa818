#include "tools/bench/gpu/run.h"

#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/comparison/contender.h"

namespace tandem {
namespace {

constexpr char kOurs[] = "tandem";

// With TF32 operands have as few bits as with bf16, or little more.
KnownLosses LossesOf(const Case& bench, const ComparisonOptions& options) {
  return KnownLosses(options.allow_tf32 ? "bf16" : bench.workload.dtype);
}

// Only a process that fails may: other losses are an error of whoever has them.
bool IsItsOwnFailure(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

class GpuCaseRun {
 public:
  GpuCaseRun(const Case& bench, const GpuPeers& peers,
             const ComparisonOptions& options)
      : bench_(bench),
        peers_(peers),
        options_(options),
        losses_(LossesOf(bench, options)) {}

  absl::StatusOr<CaseResult> Run() {
    TANDEM_RETURN_IF_ERROR(WriteInputs(bench_, options_));
    TANDEM_RETURN_IF_ERROR(Start(kOurs, Program::kTandem, bench_.ours));
    for (const std::string& peer : peers_.names) {
      // Peers are called as the recipes that they follow.
      const absl::Status started =
          Start(peer, Program::kOneProcess, WithRecipe({Setting()}, peer));
      if (!started.ok() && !(MayFail(peer) && IsItsOwnFailure(started))) {
        return started;
      }
    }
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench_.name);
    TANDEM_RETURN_IF_ERROR(Measure());
    CaseResult result;
    result.bench = bench_;
    result.ours = contenders_.front().TakeResult();
    for (size_t i = 1; i < contenders_.size(); ++i) {
      result.peers.push_back(contenders_[i].TakeResult());
    }
    return result;
  }

 private:
  absl::Status Start(const std::string& name, Program program,
                     const std::vector<Setting>& settings) {
    contenders_.push_back(StartContender(name, program, bench_, options_));
    TANDEM_RETURN_IF_ERROR(contenders_.back().status());
    return contenders_.back().Choose(settings, bench_.workload.compared_steps,
                                     /*teaches=*/name == kOurs, losses_);
  }

  bool MayFail(const std::string& peer) const {
    for (const std::string& each : peers_.may_fail) {
      if (each == peer) return true;
    }
    return false;
  }

  absl::Status Measure() {
    std::vector<Contender*> all;
    for (Contender& each : contenders_) all.push_back(&each);
    const int64_t steps = options_.StepsOf(bench_.workload);
    TANDEM_RETURN_IF_ERROR(
        TakeTurns(options_.rounds, all,
                  [&](Contender& each) { return each.MeasureStep(steps); }));
    return TakeTurns(1, all,
                     [](Contender& each) { return each.MeasureMemory(); });
  }

  const Case& bench_;
  const GpuPeers& peers_;
  const ComparisonOptions& options_;
  KnownLosses losses_;
  std::vector<Contender> contenders_;  // tandem's first
};

}  // namespace

GpuPeers UsualGpuPeers(const std::string& device) {
  if (device != "cuda") return {{"eager", "compile"}, {"compile"}};
  return {{"eager", "compile", "reduce_overhead", "cuda_graphs"},
          {"compile", "reduce_overhead", "cuda_graphs"}};
}

absl::StatusOr<CaseResult> RunGpuCase(const Case& bench, const GpuPeers& peers,
                                      const ComparisonOptions& options) {
  return GpuCaseRun(bench, peers, options).Run();
}

}  // namespace tandem
