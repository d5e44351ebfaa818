#include "tools/trainer/run_report.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/communicator.h"
#include "core/comm/group_agreement.h"
#include "core/device/host_memory.h"
#include "core/finite/finite_check.h"
#include "core/flight/recorder.h"
#include "core/precision/loss_scale.h"
#include "core/precision/mixed_precision.h"
#include "core/program/process.h"
#include "core/sim/streams/streams.h"
#include "parallel/step/step_score.h"
#include "tools/report/event_fields.h"
#include "tools/report/job_layout.h"
#include "tools/report/mesh_drawing.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/environment.h"
#include "tools/trainer/job/devices.h"
#include "tools/trainer/next_steps.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/prometheus.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/report/run_page.h"
#include "tools/trainer/report/tensorboard.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

// The number of steps by which the host may be ahead of devices: it keeps their
// batches.
constexpr size_t kMostPendingSteps = 16;

// What --dtype costs here; empty: it is what the processor is for.
std::string WhySlow(const Job& job) {
  const auto dtype = RequestedPrecision(job.options).param_dtype;
  if (!dtype || !RunsCpuKernels(job.devices.front().type())) return "";
  const std::string why = WhySlowOnThisProcessor(*dtype);
  if (why.empty()) return why;
  return absl::StrFormat("warning: computing in %s: %s", PrecisionName(*dtype),
                         why);
}

// 0: the loss is not scaled, or always by 1.
double ShownScale(Strategy& strategy) {
  const LossScale* const scale = strategy.loss_scale();
  return scale == nullptr || scale->options().constant ? 0 : scale->scale();
}

// `what` has shown that they may not be finite.
absl::Status CheckWeights(const Job& job, const std::string& what) {
  for (const auto& [name, weight] : job.strategy->Parameters()) {
    if (IsFinite(weight)) continue;
    return absl::OutOfRangeError(absl::StrCat(what, ", and ", name, " has ",
                                              CountNonfinite(weight),
                                              ": training has diverged"));
  }
  return absl::OkStatus();
}

// A scale of the loss that falls with each skipped step comes to fit, or ends
// the job; one that stays 1 would go on for ever.
absl::Status CheckSomeCounted(const Job& job, const SummaryReport& summary) {
  const LossScale* const scale = job.strategy->loss_scale();
  if (summary.steps == 0 || summary.skipped_steps < summary.steps ||
      scale == nullptr || !scale->options().constant) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrFormat(
      "all %d steps were skipped (--skip_nonfinite), for gradients that are "
      "not finite: nothing was trained; --check_finite says where the first "
      "one comes from",
      summary.steps));
}

}  // namespace

absl::StatusOr<Report> OpenReport(const Job& job) {
  if (!job.is_rank_zero()) return Report::Silent();
  TANDEM_ASSIGN_OR_RETURN(MetricsFile metrics,
                          MetricsFile::Open(job.options.metrics_file));
  TANDEM_ASSIGN_OR_RETURN(TensorBoardLog board,
                          TensorBoardLog::Open(job.options.tensorboard_dir));
  TANDEM_ASSIGN_OR_RETURN(RunPage page, RunPage::Open(job.options.report));
  Report report =
      Report::Speaking(std::move(metrics), std::move(page), std::move(board));
  if (!job.options.prometheus_file.empty()) {
    TANDEM_ASSIGN_OR_RETURN(
        std::unique_ptr<PrometheusFile> prometheus,
        PrometheusFile::Open(job.options.prometheus_file,
                             {ModelName(job), job.world->size()}));
    report.KeepPrometheus(std::move(prometheus));
  }
  return report;
}

namespace {

// The layout in words and its ranks, for jobs of several devices.
void SayLayout(const SettingValues& settings, Report& report) {
  EventFields fields;
  for (const auto& [name, value] : settings) {
    fields.emplace_back(
        name,
        std::visit([](const auto& typed) { return FieldValue(typed); }, value));
  }
  const std::optional<JobLayout> layout = ReadLayout(fields);
  const std::string drawing = layout ? MeshText(*layout) : "";
  if (drawing.empty()) return;
  report.Say(absl::StrCat("layout: ", DescribeLayout(*layout)));
  for (const absl::string_view line : absl::StrSplit(drawing, '\n')) {
    report.Say(absl::StrCat("  ", line));
  }
}

}  // namespace

absl::StatusOr<RunReport> RunReport::Start(const Job& job, Report& report) {
  if (job.takes_over()) return RunReport(job, report);
  const JobDescription settings = DescribeJob(job);
  report.ShowSettings(settings.shown, settings.all);
  SayLayout(settings.all, report);
  if (job.is_rank_zero()) report.ShowEnvironment(JobEnvironment(job));
  if (!job.partition.empty()) report.Say(job.partition);
  if (job.microbatches > 0) {
    report.Say("microbatches: " + job.microbatches_tried);
  }
  if (!job.data.has_test()) {
    report.Say("the test set is empty: nothing is evaluated");
  }
  if (job.options.peak_tflops > 0 && !job.flops.unknown.empty()) {
    report.Say("no MFU: the model's FLOPs cannot be counted: " +
               job.flops.unknown);
  }
  const std::string slow = WhySlow(job);
  if (!slow.empty()) report.Say(slow);
  return RunReport(job, report);
}

absl::Status RunReport::Begin(bool resumed) {
  return report_->Begin(/*goes_on=*/resumed || job_->is_restarted() ||
                        job_->takes_over());
}

void RunReport::StartEpoch(int64_t epoch, int64_t steps) {
  epoch_ = absl::StrFormat("epoch %d/%d", epoch + 1, job_->options.epochs);
  epoch_steps_ = steps;
  first_ = -1;
  GoOn();
}

void RunReport::GoOn() {
  report_->StartProgress(epoch_, epoch_steps_);
  Pause();
}

void RunReport::BeginStep(int64_t done) {
  if (first_ < 0) first_ = done;
  if (summary_.startup_ms == 0) summary_.startup_ms = MillisecondsSinceStart();
  // The line before has been reported, the next one begins.
  if (done % job_->options.log_every == 0) {
    meter_.Reset();
    own_score_ = Score();
  }
  host_waits_.BeginStep();
}

void RunReport::NoteSkipped(const SkippedStepReport& skipped) {
  summary_.skipped_steps = skipped.skipped_steps;
  report_->ShowSkippedStep(skipped);
}

StepReport RunReport::MakeStepReport(const Step& step,
                                     const StepScore& score) const {
  StepReport line;
  line.epoch = step.epoch + 1;
  line.step = step.done;
  line.samples = step.samples_so_far;
  line.score = meter_.score();
  line.auxiliary_losses = meter_.auxiliary_losses();
  line.sums = meter_.sums();
  line.learning_rate = step.learning_rate;
  line.gradient_norm = score.gradient_norm;
  line.samples_per_s = meter_.samples_per_s();
  line.flops_per_s = job_->flops.per_s(line.samples_per_s);
  line.utilization = job_->flops.utilization(line.samples_per_s);
  line.tokens = TokenCount(line.samples);
  line.tokens_per_s = line.samples_per_s * static_cast<double>(TokenCount(1));
  line.is_smoothed = job_->options.label_smoothing > 0;
  line.step_ms = meter_.step_ms();
  line.left_s = line.step_ms / 1e3 * (step.in_all - step.done);
  line.rss_mib = RssMib();
  line.loss_scale = ShownScale(*job_->strategy);
  return line;
}

int64_t RunReport::TokenCount(int64_t samples) const {
  const Dataset& data = *job_->data.train;
  return data.tokens() ? samples * data.input_shape().front() : 0;
}

// Each rank's, or none where there is one. Workers of servers take steps of
// their own. Collective.
absl::StatusOr<std::vector<RankReport>> RunReport::GatherRanks(
    const RankReport& mine) const {
  std::vector<RankReport> ranks;
  if (job_->world->size() == 1 || ParameterServerCount(job_->options) > 0) {
    return ranks;
  }
  const at::Tensor sent = at::empty({kScoreNumbers + 1}, at::kDouble);
  ToNumbers(mine.score, sent.mutable_data_ptr<double>());
  sent.mutable_data_ptr<double>()[kScoreNumbers] = mine.step_ms;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<at::Tensor> all, job_->world->AllGather(sent, [] {
        return std::string("each rank's loss and time, to report them");
      }));
  for (size_t i = 0; i < all.size(); ++i) {
    const auto* const numbers = all[i].const_data_ptr<double>();
    ranks.push_back(
        {job_->present ? job_->present->ranks[i] : static_cast<int>(i),
         ScoreFromNumbers(numbers), numbers[kScoreNumbers]});
  }
  return ranks;
}

bool RunReport::IsShown(const Step& step) const {
  return step.done % job_->options.log_every == 0 || step.done >= step.in_all;
}

absl::Status RunReport::EndStep(const Step& step) {
  host_waits_.EndStep();
  const c10::Device device = job_->devices.front();
  pending_.push_back({step, DeviceMoment::Now(device)});
  const bool due =
      device.is_cpu() || IsShown(step) || pending_.size() >= kMostPendingSteps;
  return due ? ReadScores() : absl::OkStatus();
}

absl::Status RunReport::ReadScores() {
  if (pending_.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StepScore> scores,
                          job_->strategy->TakeScores());
  CHECK_EQ(scores.size(), pending_.size());
  const std::vector<Pending> ended = std::exchange(pending_, {});
  for (size_t i = 0; i < ended.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(Note(ended[i], scores[i]));
  }
  return absl::OkStatus();
}

absl::Status RunReport::Note(const Pending& ended, const StepScore& result) {
  const Step& step = ended.step;
  const Score& score = result.score;
  const Clock::time_point end = ended.end.time();
  // A step that overflowed before its gradients did has no mean.
  const bool finite = std::isfinite(score.loss());
  meter_.Add(finite ? score : Score(), step.samples, end - last_step_end_,
             finite ? result.auxiliary_losses : StepMeter::Losses(),
             finite ? result.sums : StepMeter::Losses());
  if (finite) own_score_ += result.own;
  last_step_end_ = end;
  ++summary_.steps;
  const bool was_skipped = result.scaled && result.scaled->was_skipped;
  if (!finite && !was_skipped) {
    return absl::OutOfRangeError(absl::StrFormat(
        "the loss of step %d is %g: training has diverged; try a smaller "
        "--learning_rate than %g, or --clip_grad_norm",
        step.done, Shown(score.loss()), ResolvedLearningRate(job_->options)));
  }
  summary_.samples = step.samples_so_far;
  summary_.tokens = TokenCount(step.samples_so_far);
  if (was_skipped) {
    NoteSkipped(
        {step.done,
         ShownScale(*job_->strategy) > 0 ? result.scaled->loss_scale : 0,
         result.scaled->skipped_steps});
  }
  report_->ShowProgress(
      step.done - first_,
      absl::StrFormat("loss %.4f", Shown(meter_.score().loss())));
  if (!IsShown(step)) return absl::OkStatus();
  StepReport line = MakeStepReport(step, result);
  // All ranks know whether it is asked for, as their settings are the same.
  if (!job_->options.tensorboard_dir.empty()) {
    RankReport mine;
    mine.score = own_score_;
    mine.step_ms = meter_.step_ms();
    TANDEM_ASSIGN_OR_RETURN(line.ranks, GatherRanks(mine));
  }
  summary_.last_steps = line.score;
  report_->ShowStep(line, step.in_all);
  return absl::OkStatus();
}

absl::Status RunReport::ShowEvaluation(const EvaluationReport& evaluation) {
  summary_.evaluation = evaluation;
  const double loss = evaluation.score.loss();
  report_->ShowEvaluation(evaluation);
  if (std::isfinite(loss)) return absl::OkStatus();
  const std::string what =
      absl::StrFormat("the loss of the test set is %g", Shown(loss));
  if (job_->options.eval_only) return absl::OutOfRangeError(what);
  absl::Status weights = CheckWeights(*job_, what);
  // Workers of servers evaluate whole models, and servers none.
  if (ParameterServerCount(job_->options) == 0) {
    weights = AgreeOnSuccess(weights, "checked its weights", *job_->world);
  }
  TANDEM_RETURN_IF_ERROR(weights);
  report_->Say(
      absl::StrCat("warning: ", what, ", though all weights are finite"));
  return absl::OkStatus();
}

absl::Status RunReport::Summarise(const std::string& checkpoint,
                                  const SaveTimes& saves,
                                  const std::optional<BestReport>& best) {
  Strategy& strategy = *job_->strategy;
  summary_.best = best;
  summary_.checkpoint = checkpoint;
  summary_.saves = saves.saves;
  summary_.save_stall_ms = saves.stalled_ms;
  summary_.flight_entries = FlightRecorder::OfProcess().noted();
  summary_.samples_per_s = meter_.total_samples_per_s();
  summary_.step_ms_median = meter_.median_step_ms();
  RankReport mine;
  mine.step_ms = meter_.mean_step_ms();
  TANDEM_ASSIGN_OR_RETURN(std::vector<RankReport> ranks, GatherRanks(mine));
  summary_.ranks = SlowestRanks(std::move(ranks));
  summary_.peak_rss_mib = PeakRssMib();
  if (job_->options.ddp.ddp_logging) {
    summary_.measurements = strategy.Measurements();
  }
  // All ranks take part, of which a parameter server's job may have lost some.
  if (ParameterServerCount(job_->options) == 0) {
    TANDEM_ASSIGN_OR_RETURN(summary_.device_memory,
                            PeakMemory(job_->devices, *job_->world));
  }
  if (sim::CountsHostWaits() && host_waits_.steps() > 0) {
    summary_.host_waits = host_waits_.waits();
  }
  WeightsHasher hasher;
  JoinedRows whole(job_->row_parts, hasher);
  TANDEM_RETURN_IF_ERROR(strategy.StreamState(StateParts(), whole));
  if (job_->is_rank_zero()) summary_.weights_sha256 = hasher.HexDigest();
  TANDEM_ASSIGN_OR_RETURN(const std::string times, strategy.DescribeTimes());
  if (!times.empty()) report_->Say(times);
  summary_.pipeline_times = times;
  summary_.advice =
      NextSteps(job_->options, {job_->world->size(), job_->data.train->tokens(),
                                job_->data.train->input_shape(), checkpoint});
  report_->ShowSummary(summary_);
  return CheckSomeCounted(*job_, summary_);
}

}  // namespace tandem
