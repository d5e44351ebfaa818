#include "tools/trainer/report/evaluation_report.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "tools/trainer/report/shown.h"
#include "tools/trainer/report/step_report.h"

namespace tandem {

std::string LineOf(const EvaluationReport& evaluation) {
  const Score& score = evaluation.score;
  return absl::StrFormat(
      "%stest: loss %.4f%s%s  accuracy %.2f %%  (%d predictions)",
      evaluation.is_alone ? ""
                          : absl::StrFormat("epoch %d  ", evaluation.epoch),
      Shown(score.loss()),
      evaluation.is_text
          ? absl::StrFormat("  perplexity %.4g", Shown(std::exp(score.loss())))
          : "",
      DescribeSums(evaluation.sums), 100 * score.accuracy(), score.count);
}

nlohmann::ordered_json FieldsOf(const EvaluationReport& evaluation) {
  const Score& score = evaluation.score;
  nlohmann::ordered_json fields = {{"epoch", evaluation.epoch},
                                   {"loss", score.loss()},
                                   {"accuracy", score.accuracy()},
                                   {"count", score.count}};
  if (evaluation.is_text) fields["perplexity"] = std::exp(score.loss());
  if (!evaluation.sums.empty()) fields["sums"] = evaluation.sums;
  return fields;
}

}  // namespace tandem
