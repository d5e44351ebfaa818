// Score as numbers that a collective can add up, and its sum over ranks.

#ifndef TANDEM_PARALLEL_STEP_SCORE_NUMBERS_H_
#define TANDEM_PARALLEL_STEP_SCORE_NUMBERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "core/model/batch.h"

namespace tandem {

constexpr int kScoreNumbers = 3;

// Counts are exact up to 2^53.
inline void ToNumbers(const Score& score, double* numbers) {
  numbers[0] = score.loss_sum;
  numbers[1] = static_cast<double>(score.correct);
  numbers[2] = static_cast<double>(score.count);
}

inline Score ScoreOf(const double* numbers) {
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

#endif  // TANDEM_PARALLEL_STEP_SCORE_NUMBERS_H_
