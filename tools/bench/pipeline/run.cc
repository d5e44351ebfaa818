#include "tools/bench/pipeline/run.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/pipeline/cases.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr char kOurs[] = "tandem";

// What the answers to "stages" have at `path`, medians over the rounds.
double MedianAt(const std::vector<json>& rounds,
                const json::json_pointer& path) {
  std::vector<double> values;
  for (const json& round : rounds) values.push_back(round.at(path));
  return Median(std::move(values));
}

std::vector<StageCost> StageCosts(const std::vector<json>& rounds) {
  std::vector<StageCost> costs;
  for (size_t i = 0; i < rounds.front().at("forward").size(); ++i) {
    const auto part = [&](const char* key) {
      return MedianAt(rounds,
                      json::json_pointer(absl::StrCat("/", key, "/", i)));
    };
    costs.push_back(
        {part("forward"), part("backward_input"), part("backward_weight")});
  }
  return costs;
}

// Runs one model's cases, with the same processes.
class ModelRun {
 public:
  ModelRun(const Case& first, const std::vector<std::string>& peers,
           const ComparisonOptions& options)
      : first_(first),
        workload_(first.workload),
        peers_(peers),
        options_(options),
        losses_(first.workload.dtype) {}

  absl::Status Start() {
    TANDEM_RETURN_IF_ERROR(WriteInputs(first_, options_));
    contenders_.push_back(
        StartContender(kOurs, Program::kTandem, first_, options_));
    for (const std::string& peer : peers_) {
      contenders_.push_back(StartContender(
          peer, peer == kSingle ? Program::kOneProcess : Program::kPyTorch,
          first_, options_));
    }
    return ours().RecordLosses(Setting(), workload_.compared_steps, losses_);
  }

  absl::StatusOr<PipelineResult> Run(const Case& bench) {
    absl::FPrintF(stderr, "%s: settings\n", bench.name);
    TANDEM_RETURN_IF_ERROR(ours().Choose(bench.ours, workload_.compared_steps,
                                         /*records=*/true, losses_));
    for (size_t i = 1; i < contenders_.size(); ++i) ChooseFor(bench, i);
    if (bench.ours.front().schedule == "zb_v") TryUnreliable();
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench.name);
    return Measure(bench);
  }

  std::vector<UnavailableSchedule> TakeUnavailable() {
    return std::move(unavailable_);
  }

 private:
  Contender& ours() { return contenders_.front(); }

  void ChooseFor(const Case& bench, size_t index) {
    Contender& peer = contenders_[index];
    if (!peer.status().ok()) return;
    const absl::Status chosen = peer.Choose(
        peer.name() == kSingle ? std::vector<Setting>{Setting()} : bench.peers,
        workload_.compared_steps, /*records=*/false, losses_);
    if (chosen.ok()) return;
    absl::FPrintF(stderr, "%s: %s\n", bench.name, chosen.message());
  }

  // The peer's schedules that have failed elsewhere: one that runs here takes
  // part.
  void TryUnreliable() {
    if (!absl::c_linear_search(peers_, kPipelining)) return;
    for (const std::string& schedule : UnreliablePeerSchedules()) {
      Contender peer = StartContender(absl::StrCat(kPipelining, "_", schedule),
                                      Program::kPyTorch, first_, options_);
      const absl::Status tried =
          peer.Choose(UnreliableSettings(schedule, workload_),
                      workload_.compared_steps, /*records=*/false, losses_);
      if (tried.ok()) {
        contenders_.push_back(std::move(peer));
      } else {
        unavailable_.push_back(
            {workload_.model, schedule, std::string(tried.message())});
      }
    }
  }

  // One round of one contender; of ours, the stages' times too.
  absl::Status MeasureTurn(Contender& contender, std::vector<json>& stages) {
    const int64_t steps = options_.StepsOf(workload_);
    absl::Status done = contender.MeasureStep(steps);
    if (contender.name() != kSingle) done.Update(contender.MeasureAlone(steps));
    // What a peer fails of stays in its status.
    if (&contender != &ours()) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(done);
    TANDEM_ASSIGN_OR_RETURN(std::vector<json> answers,
                            contender.Ask(absl::StrCat("stages ", steps)));
    stages.push_back(std::move(answers.front()));
    return absl::OkStatus();
  }

  absl::StatusOr<PipelineResult> Measure(const Case& bench) {
    std::vector<Contender*> all;
    for (Contender& each : contenders_) all.push_back(&each);
    std::vector<json> stages;
    TANDEM_RETURN_IF_ERROR(TakeTurns(
        options_.rounds, all,
        [&](Contender& contender) { return MeasureTurn(contender, stages); }));
    PipelineResult result;
    result.bench = bench;
    result.ours = ours().TakeResult();
    for (size_t i = 1; i < contenders_.size(); ++i) {
      result.peers.push_back(contenders_[i].TakeResult());
    }
    TANDEM_RETURN_IF_ERROR(AddLimits(stages, result));
    return result;
  }

  static absl::Status AddLimits(const std::vector<json>& rounds,
                                PipelineResult& result) {
    const Setting& setting = result.ours.setting;
    TANDEM_ASSIGN_OR_RETURN(
        const Schedule schedule,
        MakeSchedule(setting.schedule,
                     {result.bench.layout.devices_of_replica(), setting.chunks,
                      setting.microbatches}));
    const std::vector<StageCost> stages = StageCosts(rounds);
    TANDEM_ASSIGN_OR_RETURN(result.limit,
                            PipelineLimit(schedule, Evened(stages)));
    TANDEM_ASSIGN_OR_RETURN(
        result.parts,
        PartsOfStep(
            schedule,
            {Median(result.ours.step_ms), Median(result.ours.alone_ms),
             MedianAt(rounds, json::json_pointer("/optimizer")), stages}));
    return absl::OkStatus();
  }

  const Case& first_;
  const Workload& workload_;
  const std::vector<std::string>& peers_;
  const ComparisonOptions& options_;
  std::vector<Contender> contenders_;  // tandem's first
  std::vector<UnavailableSchedule> unavailable_;
  KnownLosses losses_;
};

}  // namespace

absl::StatusOr<PipelineResults> RunPipelineModel(
    const std::vector<Case>& cases, const std::vector<std::string>& peers,
    const ComparisonOptions& options) {
  const Workload& workload = cases.front().workload;
  TANDEM_ASSIGN_OR_RETURN(
      const ComparisonOptions own,
      InOwnFolder(options, absl::StrCat(workload.model, "_", workload.dtype)));
  ModelRun run(cases.front(), peers, own);
  TANDEM_RETURN_IF_ERROR(run.Start());
  PipelineResults results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.cases.emplace_back(), run.Run(bench));
  }
  results.unavailable = run.TakeUnavailable();
  return results;
}

}  // namespace tandem
