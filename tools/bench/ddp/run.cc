#include "tools/bench/ddp/run.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/process/answers.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kAloneRounds = 3;
constexpr int kProfiledSteps = 3;

constexpr char kOurs[] = "tandem";
constexpr char kCompile[] = "compile";
constexpr char kFindUnused[] = "find_unused";

class CaseRun {
 public:
  CaseRun(const Case& bench, const DdpPeers& peers,
          const ComparisonOptions& options)
      : bench_(bench), peers_(peers), options_(options) {}

  absl::StatusOr<DdpResult> Run() {
    TANDEM_RETURN_IF_ERROR(WriteInputs(bench_, options_));
    TANDEM_RETURN_IF_ERROR(Start(kOurs, bench_.ours));
    for (const std::string& peer : peers_.names) {
      // Peers are called as the recipes that they follow.
      TANDEM_RETURN_IF_ERROR(Start(peer, WithRecipe({Setting()}, peer)));
    }
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench_.name);
    TANDEM_RETURN_IF_ERROR(Measure());
    DdpResult result;
    result.bench = bench_;
    TANDEM_RETURN_IF_ERROR(MeasureLimits(result));
    for (Contender& each : contenders_) {
      SideResult its = each.TakeResult();
      if (each.name() == kOurs) {
        result.ours = std::move(its);
      } else {
        result.peers.push_back(std::move(its));
      }
    }
    return result;
  }

 private:
  absl::Status Start(const std::string& name,
                     const std::vector<Setting>& settings) {
    const bool tandem = name == kOurs || name == kFindUnused;
    contenders_.push_back(StartContender(
        name, tandem ? Program::kTandem : Program::kPyTorch, bench_, options_));
    Contender& contender = contenders_.back();
    TANDEM_RETURN_IF_ERROR(contender.status());
    const absl::Status chosen =
        contender.Choose(settings, bench_.workload.compared_steps,
                         /*teaches=*/name == kOurs, losses_);
    return MayFail(contender) ? absl::OkStatus() : chosen;
  }

  // One whose process fails; other losses are an error of whoever has them.
  bool MayFail(const Contender& contender) const {
    return peers_.compile_may_fail && contender.name() == kCompile &&
           (absl::IsAborted(contender.status()) ||
            absl::IsDeadlineExceeded(contender.status()));
  }

  absl::Status Measure() {
    std::vector<Contender*> all;
    for (Contender& each : contenders_) all.push_back(&each);
    const int64_t steps = options_.StepsOf(bench_.workload);
    TANDEM_RETURN_IF_ERROR(
        TakeTurns(options_.rounds, all,
                  [&](Contender& each) { return each.MeasureStep(steps); }));
    TANDEM_RETURN_IF_ERROR(TakeTurns(1, all, [&](Contender& each) {
      TANDEM_RETURN_IF_ERROR(each.MeasureMemory());
      return each.MeasureCommunication(steps);
    }));
    return TakeTurns(std::min(options_.rounds, kAloneRounds), all,
                     [&](Contender& each) { return each.MeasureAlone(steps); });
  }

  absl::Status MeasureLimits(DdpResult& result) {
    Contender& ours = contenders_.front();
    TANDEM_ASSIGN_OR_RETURN(const std::vector<json> gemm, ours.Ask("gemm"));
    result.mkl_gflops = gemm.front().at("mkl_gflops");
    result.one_dnn_gflops = gemm.front().at("one_dnn_gflops");
    TANDEM_ASSIGN_OR_RETURN(const std::vector<json> all_reduce,
                            ours.Ask("all_reduce"));
    result.all_reduce_ms = Greatest(all_reduce, "ms");
    result.gloo_all_reduce_ms = Greatest(all_reduce, "gloo_ms");
    TANDEM_ASSIGN_OR_RETURN(const std::vector<json> profile,
                            ours.Ask(absl::StrCat("profile ", kProfiledSteps)));
    result.profile = profile.front();
    TANDEM_ASSIGN_OR_RETURN(const std::vector<json> products,
                            ours.Ask("products"));
    result.products = products.front();
    return absl::OkStatus();
  }

  const Case& bench_;
  const DdpPeers& peers_;
  const ComparisonOptions& options_;
  std::vector<Contender> contenders_;  // tandem's first
  KnownLosses losses_{bench_.workload.dtype};
};

}  // namespace

absl::StatusOr<DdpResult> RunDdpCase(const Case& bench, const DdpPeers& peers,
                                     const ComparisonOptions& options) {
  return CaseRun(bench, peers, options).Run();
}

}  // namespace tandem
