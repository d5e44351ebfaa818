#include "parallel/step/step_score.h"

#include <ATen/ops/empty.h>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"

namespace tandem {

absl::StatusOr<Score> SumOver(Communicator* group, const Score& score,
                              const CollectivePurpose& purpose) {
  if (group == nullptr) return score;
  const at::Tensor sums = at::empty({kScoreNumbers}, at::kDouble);
  ToNumbers(score, sums.mutable_data_ptr<double>());
  TANDEM_RETURN_IF_ERROR(group->AllReduceSum(sums, purpose));
  return ScoreFromNumbers(sums.const_data_ptr<double>());
}

}  // namespace tandem
