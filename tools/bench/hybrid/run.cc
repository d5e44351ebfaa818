#include "tools/bench/run_hybrid.h"

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/pipeline_contender.h"

namespace tandem {
namespace {

using nlohmann::json;

// Each is one of ours that computes in the same way.
constexpr char kPlain[] = "_plain";
constexpr char kReproducible[] = "_reproducible";

const char* PeerName(const BenchLayout& layout) {
  const bool pipelined = layout.devices_of_replica() > 1;
  if (layout.replicas == 1) return pipelined ? kPipelining : kSingle;
  return pipelined ? "ddp+pipelining" : "ddp";
}

// Can it be reproducible?
absl::StatusOr<bool> IsOrdered(const PipelineSetting& setting,
                               const BenchLayout& layout) {
  if (setting.together > 1) return false;
  TANDEM_ASSIGN_OR_RETURN(
      const Schedule schedule,
      MakeSchedule(setting.schedule, {layout.devices_of_replica(),
                                      setting.chunks, setting.microbatches}));
  return OrderOfGradients(schedule) != GradientsCome::kInNoOrder;
}

absl::StatusOr<PipelineSetting> FastestOrdered(
    const std::vector<PipelineSetting>& ranking, const BenchLayout& layout) {
  for (const PipelineSetting& each : ranking) {
    TANDEM_ASSIGN_OR_RETURN(const bool ordered, IsOrdered(each, layout));
    if (ordered) return each;
  }
  return absl::InternalError("no setting can be reproducible");
}

// Runs one model's cases.
class ModelRun {
 public:
  ModelRun(const BenchCase& bench, PipelineBenchOptions options,
           bool reproducible)
      : bench_(bench),
        options_(std::move(options)),
        reproducible_(reproducible) {}

  absl::Status Start() { return WriteInputs(bench_.name, options_); }

  absl::StatusOr<HybridCaseResult> Run(const HybridCase& bench) {
    options_.layout = bench.layout;
    absl::FPrintF(stderr, "%s: settings\n", bench.name);
    TANDEM_RETURN_IF_ERROR(StartOurs(bench));
    PipelineContender& peer = PeerFor(bench);
    if (!peer.status().ok()) {
      absl::FPrintF(stderr, "%s: %s\n", bench.name, peer.status().message());
    }
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench.name);
    return Measure(bench, peer);
  }

 private:
  // Has one of our sides choose, and adds it to ours_.
  absl::Status AddOurs(const HybridCase& bench, const std::string& suffix,
                       const std::vector<PipelineSetting>& settings) {
    ours_.push_back(StartContender(
        absl::StrCat(kOurs, "_", bench.name.substr(bench_.name.size() + 1),
                     suffix),
        bench_, options_));
    return ours_.back().Choose(settings, bench_.compared_steps,
                               /*teaches=*/true, losses_);
  }

  absl::Status StartOurs(const HybridCase& bench) {
    ours_.clear();
    TANDEM_RETURN_IF_ERROR(AddOurs(bench, "", bench.ours));
    if (!reproducible_) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(
        PipelineSetting setting,
        FastestOrdered(ours_.front().ranking(), bench.layout));
    TANDEM_RETURN_IF_ERROR(AddOurs(bench, kPlain, {setting}));
    setting.reproducible = true;
    return AddOurs(bench, kReproducible, {setting});
  }

  // Layouts that are one for the peers share its processes and its choice.
  PipelineContender& PeerFor(const HybridCase& bench) {
    const std::pair<int, int> key = {bench.layout.replicas,
                                     bench.layout.devices_of_replica()};
    const auto known = peers_.find(key);
    if (known != peers_.end()) return *known->second;
    auto peer = std::make_unique<PipelineContender>(StartContender(
        absl::StrCat(kPipelining, "_", key.first, "x", key.second), bench_,
        options_));
    if (peer->status().ok()) {
      peer->Choose(bench.peers, bench_.compared_steps, /*teaches=*/false,
                   losses_)
          .IgnoreError();  // it stays in status()
    }
    return *(peers_[key] = std::move(peer));
  }

  // The sides take turns; who begins changes.
  absl::Status MeasureRound(int round, PipelineContender& peer) {
    const int64_t steps = options_.steps > 0 ? options_.steps : bench_.steps;
    const size_t sides = ours_.size() + 1;
    for (size_t turn = 0; turn < sides; ++turn) {
      const size_t side = (static_cast<size_t>(round) + turn) % sides;
      if (side < ours_.size()) {
        TANDEM_RETURN_IF_ERROR(ours_[side].MeasureStep(steps));
      } else if (peer.status().ok()) {
        peer.MeasureStep(steps).IgnoreError();  // it stays in status()
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<HybridCaseResult> Measure(const HybridCase& bench,
                                           PipelineContender& peer) {
    for (int round = 0; round < options_.rounds; ++round) {
      TANDEM_RETURN_IF_ERROR(MeasureRound(round, peer));
    }
    HybridCaseResult result;
    result.bench = bench;
    if (bench.layout.replicas > 1) {
      TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                              ours_.front().Overlap(bench_.steps));
      result.overlap = OverlapOf(answers, bench.layout.pipe);
    }
    TANDEM_ASSIGN_OR_RETURN(result.ours, ours_[0].TakeResult());
    if (reproducible_) {
      TANDEM_ASSIGN_OR_RETURN(result.plain, ours_[1].TakeResult());
      TANDEM_ASSIGN_OR_RETURN(result.reproducible, ours_[2].TakeResult());
    }
    absl::StatusOr<PipelineSideResult> its = peer.TakeResult();
    result.peer = its.ok() ? *std::move(its) : peer.FailedResult();
    result.peer.name = PeerName(bench.layout);
    return result;
  }

  const BenchCase& bench_;
  PipelineBenchOptions options_;
  const bool reproducible_;
  // Of the case under way: at its best, and without and with reproducible.
  std::vector<PipelineContender> ours_;
  // By replicas and devices of each.
  std::map<std::pair<int, int>, std::unique_ptr<PipelineContender>> peers_;
  LossesByMicrobatches losses_;
};

}  // namespace

absl::StatusOr<std::vector<HybridCaseResult>> RunHybridModel(
    const std::vector<HybridCase>& cases, const PipelineBenchOptions& options,
    bool reproducible) {
  ModelRun run(cases.front().bench, options, reproducible);
  TANDEM_RETURN_IF_ERROR(run.Start());
  std::vector<HybridCaseResult> results;
  for (const HybridCase& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(), run.Run(bench));
  }
  return results;
}

}  // namespace tandem
