#include "tools/trainer/report/evaluation_report.h"

#include "absl/strings/str_format.h"
#include "tools/trainer/report/step_report.h"

namespace tandem {

std::string LineOf(const EvaluationReport& evaluation) {
  const Score& score = evaluation.score;
  return absl::StrFormat(
      "epoch %d  test: loss %.4f%s  accuracy %.2f %%  (%d predictions)",
      evaluation.epoch, score.loss(), DescribeSums(evaluation.sums),
      100 * score.accuracy(), score.count);
}

nlohmann::ordered_json FieldsOf(const EvaluationReport& evaluation) {
  const Score& score = evaluation.score;
  nlohmann::ordered_json fields = {{"epoch", evaluation.epoch},
                                   {"loss", score.loss()},
                                   {"accuracy", score.accuracy()},
                                   {"count", score.count}};
  if (!evaluation.sums.empty()) fields["sums"] = evaluation.sums;
  return fields;
}

}  // namespace tandem
