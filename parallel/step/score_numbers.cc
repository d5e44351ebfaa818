#include "parallel/step/score_numbers.h"

#include <ATen/ops/empty.h>

#include "core/base/status_macros.h"

namespace tandem {

absl::StatusOr<Score> SumOver(Communicator* group, const Score& score,
                              const CollectivePurpose& purpose) {
  if (group == nullptr) return score;
  const at::Tensor sums = at::empty({kScoreNumbers}, at::kDouble);
  ToNumbers(score, sums.mutable_data_ptr<double>());
  TANDEM_RETURN_IF_ERROR(group->AllReduceSum(sums, purpose));
  return ScoreOf(sums.const_data_ptr<double>());
}

}  // namespace tandem
