// Evaluation report: what a model came to on a data set, as a line and as an
// event.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_EVALUATION_REPORT_H_
#define TANDEM_TOOLS_TRAINER_REPORT_EVALUATION_REPORT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/batch.h"

namespace tandem {

struct EvaluationReport {
  int64_t epoch = 0;      // from 1
  bool is_alone = false;  // nothing is trained: a line says no epoch
  Score score;
  bool is_text = false;  // predictions are tokens, of which perplexity is told
  std::map<std::string, double> sums;  // Strategy::TakeEvaluationSums
};

// For a person.
std::string LineOf(const EvaluationReport& evaluation);

// For a program: fields of the metrics file.
nlohmann::ordered_json FieldsOf(const EvaluationReport& evaluation);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_EVALUATION_REPORT_H_
