// Score of a training step, with what layers and the loss function added to the
// loss, and their named sums.

#ifndef TANDEM_PARALLEL_STRATEGY_STEP_SCORE_H_
#define TANDEM_PARALLEL_STRATEGY_STEP_SCORE_H_

#include <map>
#include <optional>
#include <string>

#include "core/model/batch.h"

namespace tandem {

struct StepScore {
  Score score;
  std::map<std::string, double> auxiliary_losses;  // Strategy's
  std::map<std::string, double> sums = {};         // Strategy::NamedSums
  // See Strategy::MeasureGradientNorm; nothing: it was not asked for.
  std::optional<double> gradient_norm = {};
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STEP_SCORE_H_
