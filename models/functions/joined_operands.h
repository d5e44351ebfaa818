// Operands of weight gradients, of several microbatches, as one.

#ifndef TANDEM_MODELS_FUNCTIONS_JOINED_OPERANDS_H_
#define TANDEM_MODELS_FUNCTIONS_JOINED_OPERANDS_H_

#include <ATen/ops/cat.h>

#include "absl/types/span.h"
#include "core/model/weight_gradient_sink.h"

namespace tandem {

// Concatenates the microbatches' operands along dimension 0. One product over
// the whole is faster than one for each, whose results have to be added up: for
// 512 x 512 and 4 x 32 rows by a third, for 8 x 16 rows by half. Those of one
// microbatch are given back as they are.
inline DeferredGradients::Operands JoinOperands(
    absl::Span<const DeferredGradients::Operands> microbatches) {
  if (microbatches.size() == 1) return microbatches.front();
  DeferredGradients::Operands joined;
  for (size_t i = 0; i < microbatches.front().size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const auto& each : microbatches) parts.push_back(each[i]);
    joined.push_back(at::cat(parts));
  }
  return joined;
}

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_JOINED_OPERANDS_H_
