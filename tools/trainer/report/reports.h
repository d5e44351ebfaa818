// Reports of a training job: what is told of a step, an evaluation and the
// whole run, each as lines for a person and as fields of the metrics file.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_REPORTS_H_
#define TANDEM_TOOLS_TRAINER_REPORT_REPORTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/batch.h"

namespace tandem {

// Which sign a NaN has tells a person nothing: "nan", not "-nan".
inline double Shown(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

// What is known of one rank, since the last report.
struct RankReport {
  int rank = 0;  // as it was launched
  Score score;   // of no predictions where other ranks have the loss
  double step_ms = 0;
};

struct StepReport {
  int64_t epoch = 0;  // from 1
  int64_t step = 0;   // of the job, from 1
  // The samples that the job has trained on, with this step.
  int64_t samples = 0;
  int64_t tokens = 0;  // where samples are text
  Score score;         // of the steps since the last report
  std::map<std::string, double>
      auxiliary_losses;                // see Strategy::AuxiliaryLosses
  std::map<std::string, double> sums;  // NamedSums, since the last report
  double learning_rate = 0;
  // The norm of this step, before it was clipped
  // (Strategy::MeasureGradientNorm).
  std::optional<double> gradient_norm;
  double samples_per_s = 0;
  double tokens_per_s = 0;  // 0: samples are no text
  // Labels are smoothed: the loss is no cross entropy of the text.
  bool is_smoothed = false;
  double flops_per_s = 0;  // the model's; 0: not known
  double utilization = 0;  // MFU: of what devices could do; 0: not known
  double step_ms = 0;      // mean since the last report
  double left_s = 0;       // what the steps that are left will take, by that
  double rss_mib = 0;      // memory that this process holds
  double loss_scale = 0;   // from the next step on; 0: it is not scaled
  std::vector<RankReport> ranks;  // all, for TensorBoard; else none
};

// What a line shows for a text; nothing where the loss does not say it.
std::optional<double> TrainingPerplexity(const StepReport& step);

std::string ReportLine(const StepReport& step, int64_t steps_in_all);
nlohmann::ordered_json ReportFields(const StepReport& step);

// A step that changed nothing, because a gradient was not finite.
struct SkippedStepReport {
  int64_t step = 0;           // of the job, from 1
  double loss_scale = 0;      // from the next step on; 0: it is not scaled
  int64_t skipped_steps = 0;  // of this run, with it
};

std::string ReportLine(const SkippedStepReport& skipped);
nlohmann::ordered_json ReportFields(const SkippedStepReport& skipped);

struct EvaluationReport {
  int64_t epoch = 0;          // from 1
  bool is_alone = false;      // nothing is trained: a line says no epoch
  bool within_epoch = false;  // a line says the step instead of the epoch
  int64_t step = 0;           // of the job, done before it
  int64_t samples = 0;        // that the job has trained on; 0: not known
  int64_t tokens = 0;         // where samples are text
  Score score;
  bool is_text = false;  // predictions are tokens, of which perplexity is told
  // Bits for each byte of the text; 0: its bytes are not known.
  double bits_per_byte = 0;
  bool is_best = false;                // better than all before it
  std::map<std::string, double> sums;  // Strategy::TakeEvaluationSums
};

std::string ReportLine(const EvaluationReport& evaluation);
nlohmann::ordered_json ReportFields(const EvaluationReport& evaluation);

// The best evaluation of a job, with those before a resume.
struct BestReport {
  int64_t step = 0;  // done before it
  double loss = 0;
  double accuracy = 0;
  std::string checkpoint;  // of it; empty: none was kept
};

// A text that the model made of --prompt.
struct SampleReport {
  int64_t step = 0;  // of the job, done before it
  std::string text;  // with the prompt
};

std::vector<std::string> ReportLines(const SampleReport& sample);
nlohmann::ordered_json ReportFields(const SampleReport& sample);

// Mean steps of a job's ranks, of which there are several.
struct RankTimes {
  double median_ms = 0;
  std::vector<RankReport> slowest;  // the slowest first; of one rank none
};

// How many of them are told, however many ranks there are.
constexpr size_t kMostSlowestRanks = 16;

// The times of `ranks`, but for those without a step.
RankTimes SlowestRanks(std::vector<RankReport> ranks);

struct SummaryReport {
  int64_t steps = 0;
  // The samples that the job has trained on, those before a resume included; 0:
  // not known.
  int64_t samples = 0;
  int64_t tokens = 0;         // where samples are text
  int64_t skipped_steps = 0;  // of them
  Score last_steps;           // of the last step report
  // The last one; of no predictions: nothing was evaluated.
  EvaluationReport evaluation;
  std::optional<BestReport> best;  // where one was asked for
  double samples_per_s = 0;
  double step_ms_median = 0;
  RankTimes ranks;
  double peak_rss_mib = 0;
  double startup_ms = 0;
  // What each simulated device held at most, and what for.
  std::vector<std::pair<std::string, std::string>> device_memory;
  // For what rank 0's host waited for its own simulated devices within a step,
  // and how often. Not there: they are none, or not asynchronous.
  std::optional<std::map<std::string, double>> host_waits;
  std::string weights_sha256;
  std::string checkpoint;      // where the last one lies; empty: none
  int64_t saves = 0;           // checkpoints that were written
  double save_stall_ms = 0;    // that the loop stood still for them
  int64_t flight_entries = 0;  // that rank 0 has noted for --flight_dir
  // See Strategy::Measurements.
  std::vector<std::pair<std::string, double>> measurements;
  // Strategy::DescribeTimes; empty: no pipeline.
  std::string pipeline_times;
  // What to try next, and the flags for it beside the job's own.
  std::vector<std::pair<std::string, std::string>> advice;
};

std::vector<std::string> ReportLines(const SummaryReport& summary);
nlohmann::ordered_json ReportFields(const SummaryReport& summary);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_REPORTS_H_
