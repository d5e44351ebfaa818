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

namespace tandem {
namespace {

// A schedule of tandem's and what it is compared with.
struct Pairing {
  const char* ours;
  int our_chunks;
  const char* peers;
  std::vector<int> peer_chunks;
};

const std::vector<Pairing>& Pairings() {
  static const auto* const pairings = new std::vector<Pairing>{
      {"gpipe", 1, "gpipe", {1}},
      {"1f1b", 1, "1f1b", {1}},
      {"interleaved_1f1b", 2, "interleaved_1f1b", {2}},
      {"looped_bfs", 2, "looped_bfs", {2}},
      {"zb_h1", 1, "zero_bubble", {1, 2}},
      {"zb_v", 2, "zero_bubble", {1, 2}},
  };
  return *pairings;
}

std::vector<int> Counts() { return {2, 4, 8, 16}; }

}  // namespace

std::vector<Case> PipelineCases(int devices) {
  std::vector<Case> cases;
  // Losses are compared for every setting, so that few steps do.
  for (const Workload& workload :
       {*WorkloadNamed("mlp_deep"),
        WithSgd(*WorkloadNamed("gpt_tiny"), 0.001, 3),
        WithSgd(*WorkloadNamed("resnet18"), 0.001, 1)}) {
    for (const Pairing& pairing : Pairings()) {
      Case made;
      made.name = absl::StrCat(workload.model, "/", pairing.ours);
      made.workload = workload;
      made.layout.devices = devices;
      made.ours = WithWeightsTogether(SettingChoices(
          pairing.ours, {pairing.our_chunks}, Counts(), workload.batch_size));
      made.peers = SettingChoices(pairing.peers, pairing.peer_chunks, Counts(),
                                  workload.batch_size);
      cases.push_back(std::move(made));
    }
  }
  return cases;
}

std::vector<std::string> UnreliablePeerSchedules() {
  return {"zbv", "dual_pipe_v"};
}

std::vector<Setting> UnreliableSettings(const std::string& schedule,
                                        const Workload& workload) {
  // DualPipeV takes two microbatches a stage at the least.
  return SettingChoices(schedule, {2}, {4, 8, 16}, workload.batch_size);
}

absl::StatusOr<double> PipelineLimit(const Schedule& schedule,
                                     const std::vector<StageCost>& costs) {
  ScheduleCosts all;
  all.stages = costs;
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction times,
                          PredictSchedule(schedule, all));
  return 1 - times.idle;
}

std::vector<StageCost> Evened(const std::vector<StageCost>& costs) {
  StageCost sum = {0, 0, 0};
  for (const StageCost& each : costs) {
    sum.forward += each.forward;
    sum.backward_input += each.backward_input;
    sum.backward_weight += each.backward_weight;
  }
  const auto count = static_cast<double>(costs.size());
  const StageCost mean = {sum.forward / count, sum.backward_input / count,
                          sum.backward_weight / count};
  return std::vector<StageCost>(costs.size(), mean);
}

absl::StatusOr<StepParts> SplitStepTime(const Schedule& schedule,
                                        const StepMeasurements& measured) {
  const std::vector<StageCost> even = Evened(measured.stages);
  TANDEM_ASSIGN_OR_RETURN(const double limit, PipelineLimit(schedule, even));
  TANDEM_ASSIGN_OR_RETURN(const double stage_limit,
                          PipelineLimit(schedule, measured.stages));
  const StageCost& each = even.front();
  const double work =
      (each.forward + each.backward_input + each.backward_weight) *
      schedule.stages * schedule.microbatches / schedule.devices();
  StepParts parts;
  parts.step = measured.step_ms;
  parts.whole = measured.alone_ms / schedule.devices();
  parts.microbatching = work + measured.optimizer_ms - parts.whole;
  parts.bubble = work / limit - work;
  parts.imbalance = work / stage_limit - work / limit;
  parts.rest = parts.step - parts.whole - parts.microbatching - parts.bubble -
               parts.imbalance;
  return parts;
}

double MicrobatchOverhead(double step_ms, double alone_ms, double limit,
                          int devices, int microbatches) {
  return (step_ms - alone_ms / devices / limit) / microbatches;
}

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
    const int64_t steps = options_.StepsPerRound(workload_);
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
    TANDEM_RETURN_IF_ERROR(ours().MeasureFloor());
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
        SplitStepTime(
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
