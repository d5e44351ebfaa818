// Score of a training step, with what layers and the loss function added to the
// loss, and their named sums; and scores as numbers that a collective adds up.

#ifndef TANDEM_PARALLEL_STEP_STEP_SCORE_H_
#define TANDEM_PARALLEL_STEP_STEP_SCORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/comm/pending_collective.h"
#include "core/model/batch.h"
#include "core/precision/loss_scale.h"

namespace tandem {

class Communicator;

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
  // What the samples of this rank alone came to; of no predictions where other
  // ranks have their loss, or nobody knows.
  Score own = {};
};

constexpr int kScoreNumbers = 3;

// Counts are exact up to 2^53.
inline void ToNumbers(const Score& score, double* numbers) {
  numbers[0] = score.loss_sum;
  numbers[1] = static_cast<double>(score.correct);
  numbers[2] = static_cast<double>(score.count);
}

inline Score ScoreFromNumbers(const double* numbers) {
  Score score;
  score.loss_sum = numbers[0];
  score.correct = static_cast<int64_t>(numbers[1]);
  score.count = static_cast<int64_t>(numbers[2]);
  return score;
}

// The sum of every rank's `score`; a null `group` is one rank. Collective.
absl::StatusOr<Score> SumOver(Communicator* group, const Score& score,
                              const CollectivePurpose& purpose);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_STEP_SCORE_H_
