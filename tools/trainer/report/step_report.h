// Step report: what is said of the steps since the last report.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_STEP_REPORT_H_
#define TANDEM_TOOLS_TRAINER_REPORT_STEP_REPORT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/model/batch.h"

namespace tandem {

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
  // Of this step, before it was clipped (Strategy::MeasureGradientNorm).
  std::optional<double> gradient_norm;
  double samples_per_s = 0;
  double tokens_per_s = 0;  // 0: samples are no text
  double flops_per_s = 0;   // the model's; 0: not known
  double utilization = 0;   // MFU: of what devices could do; 0: not known
  double step_ms = 0;       // mean since the last report
  double left_s = 0;        // what the steps that are left will take, by that
  double rss_mib = 0;       // memory that this process holds
  double loss_scale = 0;    // from the next step on; 0: it is not scaled
};

// "  NAME SUM" of each.
std::string DescribeSums(const std::map<std::string, double>& sums);

// For a person.
std::string LineOf(const StepReport& step, int64_t steps_in_all);

// For a program: fields of the metrics file.
nlohmann::ordered_json FieldsOf(const StepReport& step);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_STEP_REPORT_H_
