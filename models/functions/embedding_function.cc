#include "models/functions/embedding_function.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>

#include <vector>

#include "core/precision/autocast.h"
#include "models/functions/split_backward.h"

namespace tandem {
namespace {

at::Tensor EmbeddingGradient(const at::Tensor& dy, const at::Tensor& indices,
                             const at::Tensor& weight) {
  return at::embedding_dense_backward(dy, indices, weight.size(0),
                                      /*padding_idx=*/-1,
                                      /*scale_grad_by_freq=*/false);
}

// One table of gradients for all microbatches. Operands: {dy, indices}.
std::vector<at::Tensor> JoinedEmbeddingGradients(
    const std::vector<at::Tensor>& weights,
    absl::Span<const DeferredGradients::Operands> microbatches,
    absl::Span<const int64_t>) {
  const auto operands = JoinOperands(microbatches);
  return {EmbeddingGradient(operands[0], operands[1], weights[0])};
}

OperatorGradients EmbeddingGradients(const at::Tensor& dy,
                                     const at::Tensor& indices,
                                     const at::Tensor& weight,
                                     const WantedGradients& wanted) {
  OperatorGradients gradients;
  if (wanted[1]) gradients[1] = EmbeddingGradient(dy, indices, weight);
  return gradients;
}

at::Tensor InItsDtype(const at::Tensor& indices, const at::Tensor& weight) {
  if (!WantsSplitBackward(/*x=*/{}, weight, /*bias=*/{})) {
    return at::embedding(weight, indices);
  }
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = at::embedding(weight, indices);
  }
  SplitOperator operation;
  operation.name = "SplitEmbeddingBackward";
  operation.backward = EmbeddingGradients;
  operation.joined = JoinedEmbeddingGradients;
  return WithSplitBackward(y, indices, weight, /*bias=*/{}, operation);
}

}  // namespace

// Rows are looked up before they are converted: there are fewer of them than
// the table has.
at::Tensor EmbeddingFunction(const at::Tensor& indices,
                             const at::Tensor& weight) {
  return InItsDtype(indices, weight)
      .to(AutocastDtype(weight.device().type(), weight.scalar_type()));
}

}  // namespace tandem
