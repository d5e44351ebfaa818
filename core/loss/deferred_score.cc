#include "core/loss/deferred_score.h"

#include <c10/util/Exception.h>

#include <cstdint>

#include "core/device/host_memory.h"

namespace tandem {

void CheckSums(const at::Tensor& sums) {
  TORCH_CHECK(sums.scalar_type() == at::kDouble && sums.dim() == 1 &&
                  (sums.size(0) == 2 || sums.size(0) == 3),
              "the sums of a loss's score must be doubles, loss_sum, correct "
              "and, if it is not known, count, not ",
              sums.scalar_type(), " ", sums.sizes());
}

bool HasCount(const at::Tensor& sums) { return sums.size(0) == 3; }

DeferredScore DeferScore(const Score& known, const at::Tensor& sums) {
  CheckSums(sums);
  const DeferredScore score = {known, sums};
  if (!sums.device().is_cpu()) return score;
  return {ReadScores({score}).front()};
}

Score FullScore(const DeferredScore& score, const double*& numbers) {
  Score full = score.known;
  if (!score.sums.defined()) return full;
  full.loss_sum += *numbers++;
  full.correct += static_cast<int64_t>(*numbers++);
  if (HasCount(score.sums)) full.count += static_cast<int64_t>(*numbers++);
  if (full.count == 0) full.loss_sum = 0;
  return full;
}

std::vector<Score> ReadScores(const std::vector<DeferredScore>& scores) {
  std::vector<at::Tensor> deferred;
  for (const DeferredScore& each : scores) {
    if (each.sums.defined()) deferred.push_back(each.sums);
  }
  const std::vector<double> numbers = ReadNumbers(deferred);
  const double* next = numbers.data();
  std::vector<Score> read;
  for (const DeferredScore& each : scores) {
    read.push_back(FullScore(each, next));
  }
  return read;
}

}  // namespace tandem
