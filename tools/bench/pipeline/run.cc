#include "tools/bench/run_pipeline.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/median.h"
#include "tools/bench/pipeline_contender.h"
#include "tools/bench/pipeline_sides.h"

namespace tandem {
namespace {

using nlohmann::json;

// The model in one piece: what "single" trains, in tandem's words.
const PipelineSetting kWhole = {"1f1b", 1, 1, "uniform"};

std::vector<StageCost> StageCosts(const json& answer) {
  std::vector<StageCost> costs;
  for (size_t i = 0; i < answer.at("forward").size(); ++i) {
    costs.push_back({answer["forward"][i], answer["backward_input"][i],
                     answer["backward_weight"][i]});
  }
  return costs;
}

// Stage by stage, medians over rounds.
std::vector<StageCost> MedianCosts(
    const std::vector<std::vector<StageCost>>& rounds) {
  std::vector<StageCost> medians;
  for (size_t stage = 0; stage < rounds.front().size(); ++stage) {
    const auto median = [&](double StageCost::*part) {
      std::vector<double> values;
      for (const auto& round : rounds) values.push_back(round[stage].*part);
      return Median(std::move(values));
    };
    medians.push_back({median(&StageCost::forward),
                       median(&StageCost::backward_input),
                       median(&StageCost::backward_weight)});
  }
  return medians;
}

// Runs one model's cases, with the same processes.
class ModelRun {
 public:
  ModelRun(const BenchCase& bench, const PipelineBenchOptions& options)
      : bench_(bench), options_(options) {}

  absl::Status Start() {
    TANDEM_RETURN_IF_ERROR(WriteInputs(bench_.name, options_));
    sides_.push_back(StartContender(kOurs, bench_, options_));
    for (const std::string& peer : options_.peers) {
      sides_.push_back(StartContender(peer, bench_, options_));
    }
    TANDEM_ASSIGN_OR_RETURN(losses_[1],
                            ours().Losses(kWhole, bench_.compared_steps));
    return absl::OkStatus();
  }

  absl::StatusOr<PipelineCaseResult> Run(const PipelineCase& bench) {
    absl::FPrintF(stderr, "%s: settings\n", bench.name);
    TANDEM_RETURN_IF_ERROR(
        ours().Choose(bench.ours, bench_.compared_steps, true, losses_));
    for (size_t i = 1; i < sides_.size(); ++i) {
      if (!sides_[i].status().ok()) continue;
      const bool single = sides_[i].name() == kSingle;
      const absl::Status chosen = sides_[i].Choose(
          single ? std::vector<PipelineSetting>{kWhole} : bench.peers,
          bench_.compared_steps, false, losses_);
      if (chosen.ok()) continue;
      absl::FPrintF(stderr, "%s: %s\n", bench.name, chosen.message());
    }
    if (bench.schedule == "zb_v") TryDoubtful();
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench.name);
    return Measure(bench);
  }

  std::vector<UnavailableSchedule> TakeUnavailable() {
    return std::move(unavailable_);
  }

 private:
  PipelineContender& ours() { return sides_.front(); }

  // The peer's schedules that have failed elsewhere: one that runs here takes
  // part.
  void TryDoubtful() {
    const auto& peers = options_.peers;
    if (std::find(peers.begin(), peers.end(), kPipelining) == peers.end()) {
      return;
    }
    for (const std::string& schedule : DoubtfulPeerSchedules()) {
      PipelineContender side = StartContender(
          absl::StrCat(kPipelining, "_", schedule), bench_, options_);
      const absl::Status tried =
          side.Choose(DoubtfulSettings(schedule, bench_), bench_.compared_steps,
                      false, losses_);
      if (tried.ok()) {
        sides_.push_back(std::move(side));
      } else {
        unavailable_.push_back(
            {bench_.name, schedule, std::string(tried.message())});
      }
    }
  }

  // The sides take turns; who begins changes.
  absl::Status MeasureRound(int round, int64_t steps) {
    for (size_t turn = 0; turn < sides_.size(); ++turn) {
      PipelineContender& side = sides_[(round + turn) % sides_.size()];
      if (!side.status().ok()) continue;
      absl::Status done = side.MeasureStep(steps);
      if (side.name() != kSingle) done.Update(side.MeasureAlone(steps));
      if (!done.ok() && &side == &ours()) return done;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PipelineCaseResult> Measure(const PipelineCase& bench) {
    const int64_t steps = options_.steps > 0 ? options_.steps : bench_.steps;
    std::vector<std::vector<StageCost>> costs;
    std::vector<double> optimizer_ms;
    for (int round = 0; round < options_.rounds; ++round) {
      TANDEM_RETURN_IF_ERROR(MeasureRound(round, steps));
      TANDEM_ASSIGN_OR_RETURN(const json stages, ours().StageTimes(steps));
      costs.push_back(StageCosts(stages));
      optimizer_ms.push_back(stages.at("optimizer"));
    }
    PipelineCaseResult result;
    result.bench = bench;
    TANDEM_ASSIGN_OR_RETURN(result.ours, ours().TakeResult());
    for (size_t i = 1; i < sides_.size(); ++i) {
      absl::StatusOr<PipelineSideResult> its = sides_[i].TakeResult();
      result.peers.push_back(its.ok() ? *std::move(its)
                                      : sides_[i].FailedResult());
    }
    result.stages = MedianCosts(costs);
    result.optimizer_ms = Median(optimizer_ms);
    TANDEM_RETURN_IF_ERROR(AddLimits(result));
    return result;
  }

  absl::Status AddLimits(PipelineCaseResult& result) const {
    const PipelineSetting& setting = result.ours.setting;
    TANDEM_ASSIGN_OR_RETURN(
        const Schedule schedule,
        MakeSchedule(setting.schedule, {options_.layout.devices, setting.chunks,
                                        setting.microbatches}));
    TANDEM_ASSIGN_OR_RETURN(result.limit,
                            PipelineLimit(schedule, Evened(result.stages)));
    TANDEM_ASSIGN_OR_RETURN(result.stage_limit,
                            PipelineLimit(schedule, result.stages));
    TANDEM_ASSIGN_OR_RETURN(
        result.parts,
        PartsOfStep(schedule,
                    {Median(result.ours.step_ms), Median(result.ours.alone_ms),
                     result.optimizer_ms, result.stages}));
    return absl::OkStatus();
  }

  const BenchCase& bench_;
  const PipelineBenchOptions& options_;
  std::vector<PipelineContender> sides_;  // tandem's first
  std::vector<UnavailableSchedule> unavailable_;
  LossesByMicrobatches losses_;
};

}  // namespace

absl::StatusOr<PipelineResults> RunPipelineModel(
    const std::vector<PipelineCase>& cases,
    const PipelineBenchOptions& options) {
  ModelRun run(cases.front().bench, options);
  TANDEM_RETURN_IF_ERROR(run.Start());
  PipelineResults results;
  for (const PipelineCase& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.cases.emplace_back(), run.Run(bench));
  }
  results.unavailable = run.TakeUnavailable();
  return results;
}

}  // namespace tandem
