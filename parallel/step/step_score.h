// Score of a training step, with what layers and the loss function added to the
// loss, and their named sums.

#ifndef TANDEM_PARALLEL_STEP_STEP_SCORE_H_
#define TANDEM_PARALLEL_STEP_STEP_SCORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/model/batch.h"
#include "core/precision/loss_scale.h"

namespace tandem {

// What became of a step whose loss is scaled (Strategy::loss_scale).
struct ScaledStep {
  bool was_skipped = false;   // a gradient was not finite
  double loss_scale = 1;      // from the next step on
  int64_t skipped_steps = 0;  // so far, LossScale's

  static ScaledStep After(const LossScale& scale) {
    return {scale.last_was_skipped(), scale.scale(), scale.skipped_steps()};
  }
};

struct StepScore {
  Score score;
  std::map<std::string, double> auxiliary_losses;  // Strategy's
  std::map<std::string, double> sums = {};         // Strategy::NamedSums
  // See Strategy::MeasureGradientNorm; nothing: it was not asked for.
  std::optional<double> gradient_norm = {};
  std::optional<ScaledStep> scaled = std::nullopt;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_STEP_SCORE_H_
