// Deferred score: one of which some numbers still lie on a device: whoever
// needs them waits for that device, so they are read as late, and as many at
// once, as can be.

#ifndef TANDEM_CORE_LOSS_DEFERRED_SCORE_H_
#define TANDEM_CORE_LOSS_DEFERRED_SCORE_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/model/batch.h"

namespace tandem {

struct DeferredScore {
  Score known;
  // To be added to it: doubles, [2] (loss_sum, correct) or [3] (and count).
  // Undefined: nothing.
  at::Tensor sums = {};
};

// Throws c10::Error for anything else.
void CheckSums(const at::Tensor& sums);
bool HasCount(const at::Tensor& sums);

// `known` and `sums`: added up where they are on the host already.
DeferredScore DeferScore(const Score& known, const at::Tensor& sums);

// `score` in full, given what its `sums` hold, if they are defined, which
// `numbers` is moved behind. One without predictions has a sum of 0.
Score FullScore(const DeferredScore& score, const double*& numbers);

// Each of them in full; one copy from each device, if there is anything to
// copy.
std::vector<Score> ReadScores(const std::vector<DeferredScore>& scores);

}  // namespace tandem

#endif  // TANDEM_CORE_LOSS_DEFERRED_SCORE_H_
