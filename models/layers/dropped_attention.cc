#include "models/layers/dropped_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/functions/attention_heads.h"
#include "models/functions/document_attention_function.h"
#include "models/layers/dropout.h"

namespace tandem {

at::Tensor DroppedAttention(const at::Tensor& qkv, int64_t heads,
                            const at::Tensor& begins, double p,
                            absl::string_view name) {
  const std::vector<at::Tensor> parts = HeadsOf(qkv, heads);
  const at::Tensor seen =
      SeenKeys(begins.defined() ? begins
                                : at::zeros({1, qkv.size(1)},
                                            qkv.options().dtype(at::kLong)));
  const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(2, 3)) /
                            std::sqrt(static_cast<double>(parts[0].size(3)));
  const at::Tensor probabilities = at::softmax(
      scores.masked_fill(~seen, -std::numeric_limits<double>::infinity()), -1);
  return JoinHeads(at::matmul(SampleDropout(probabilities, p, name), parts[2]));
}

}  // namespace tandem
