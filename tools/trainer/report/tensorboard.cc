#include "tools/trainer/report/tensorboard.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/drawing/markup.h"
#include "core/program/exit_code.h"

namespace tandem {
namespace {

// Scalars of one step, as many of them as can be written.
class Scalars {
 public:
  void Add(const std::string& tag, double value) {
    const absl::Status added = summary_.AddScalar(tag, value);
    if (error_.ok()) error_ = added;
  }
  // train/NAME of each.
  void AddTrained(const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values) {
      Add(absl::StrCat("train/", name), value);
    }
  }

  const Summary& summary() const { return summary_; }
  // Why the first of those that cannot be written cannot.
  const absl::Status& error() const { return error_; }

 private:
  Summary summary_;
  absl::Status error_;
};

Scalars StepScalars(const StepReport& step) {
  Scalars scalars;
  const bool is_text = step.tokens_per_s > 0;
  scalars.Add("train/loss", step.score.loss());
  scalars.Add("train/accuracy", step.score.accuracy());
  if (const auto perplexity = TrainingPerplexity(step)) {
    scalars.Add("train/perplexity", *perplexity);
  }
  scalars.AddTrained(step.auxiliary_losses);
  scalars.AddTrained(step.sums);
  scalars.Add("train/lr", step.learning_rate);
  if (step.gradient_norm) {
    scalars.Add("train/grad_norm", *step.gradient_norm);
  }
  if (step.loss_scale > 0) scalars.Add("train/loss_scale", step.loss_scale);
  scalars.Add(is_text ? "train/tokens_per_sec" : "train/samples_per_sec",
              is_text ? step.tokens_per_s : step.samples_per_s);
  if (step.utilization > 0) scalars.Add("train/mfu", 100 * step.utilization);
  scalars.Add("perf/step_ms", step.step_ms);
  scalars.Add("memory/rss_mib", step.rss_mib);
  for (const RankReport& each : step.ranks) {
    if (each.score.count > 0) {
      scalars.Add(absl::StrCat("train/loss_rank_", each.rank),
                  each.score.loss());
    }
    scalars.Add(absl::StrCat("perf/step_ms_rank_", each.rank), each.step_ms);
  }
  return scalars;
}

Scalars EvaluationScalars(const EvaluationReport& evaluation) {
  Scalars scalars;
  const double loss = evaluation.score.loss();
  scalars.Add("val/loss", loss);
  scalars.Add("val/accuracy", evaluation.score.accuracy());
  if (evaluation.is_text) scalars.Add("val/perplexity", std::exp(loss));
  if (evaluation.bits_per_byte != 0) {
    scalars.Add("val/bits_per_byte", evaluation.bits_per_byte);
  }
  for (const auto& [name, sum] : evaluation.sums) {
    scalars.Add(absl::StrCat("val/", name), sum);
  }
  return scalars;
}

std::string SettingsTable(const SettingValues& settings) {
  std::string table = "| setting | value |\n|---|---|\n";
  for (const auto& [name, value] : settings) {
    absl::StrAppend(&table, "| ", MarkdownCell(name), " | ",
                    MarkdownCell(ToText(value)), " |\n");
  }
  return table;
}

}  // namespace

absl::StatusOr<TensorBoardLog> TensorBoardLog::Open(const std::string& folder) {
  TensorBoardLog log;
  if (folder.empty()) return log;
  TANDEM_RETURN_IF_ERROR(RefusedIfMendable(
      Annotate(PrepareEventFolder(folder), "--tensorboard_dir")));
  log.folder_ = folder;
  return log;
}

absl::Status TensorBoardLog::Begin() {
  if (folder_.empty()) return absl::OkStatus();
  auto writer = EventWriter::Create(folder_);
  TANDEM_RETURN_IF_ERROR(
      RefusedIfMendable(Annotate(writer.status(), "--tensorboard_dir")));
  writer_ = *std::move(writer);
  return absl::OkStatus();
}

absl::Status TensorBoardLog::WriteWaiting() {
  if (writer_ == nullptr) return absl::OkStatus();
  // All of it, whichever fails.
  absl::Status written;
  if (drops_from_) written.Update(writer_->AddSessionStart(*drops_from_));
  written.Update(Add(settings_, done_));
  for (const auto& [values, step] : std::exchange(waiting_, {})) {
    written.Update(Add(values, step));
  }
  written.Update(Flush());
  return written;
}

absl::Status TensorBoardLog::Add(const Summary& values, int64_t step) {
  if (folder_.empty()) return absl::OkStatus();
  if (writer_ == nullptr) {
    waiting_.emplace_back(values, step);
    return absl::OkStatus();
  }
  return Annotate(writer_->AddSummary(values, step), "--tensorboard_dir");
}

absl::Status TensorBoardLog::AddSettings(const SettingValues& settings) {
  settings_ = Summary();
  return settings_.AddText("settings", SettingsTable(settings));
}

absl::Status TensorBoardLog::AddStep(const StepReport& step) {
  const Scalars scalars = StepScalars(step);
  const absl::Status added = Add(scalars.summary(), step.step);
  return added.ok() ? scalars.error() : added;
}

absl::Status TensorBoardLog::AddSkippedStep(const SkippedStepReport& skipped) {
  if (skipped.loss_scale == 0) return absl::OkStatus();
  Summary summary;
  TANDEM_RETURN_IF_ERROR(
      summary.AddScalar("train/loss_scale", skipped.loss_scale));
  return Add(summary, skipped.step);
}

absl::Status TensorBoardLog::AddEvaluation(const EvaluationReport& evaluation) {
  const Scalars scalars = EvaluationScalars(evaluation);
  const absl::Status added = Add(scalars.summary(), evaluation.step);
  return added.ok() ? scalars.error() : added;
}

absl::Status TensorBoardLog::Flush() {
  if (writer_ == nullptr) return absl::OkStatus();
  return Annotate(writer_->Flush(), "--tensorboard_dir");
}

}  // namespace tandem
