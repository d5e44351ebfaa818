// Muon: momentum that is orthogonalized, matrix by matrix, by Newton-Schulz
// iterations (Jordan et al., https://kellerjordan.github.io/posts/muon; Liu et
// al., "Muon is Scalable for LLM Training", arXiv:2502.16982).
//
// For the matrices of a network's hidden layers (core/model/hidden_matrices.h);
// embeddings, the head, biases and norms are for another group, with AdamW.

#ifndef TANDEM_PARALLEL_OPTIM_MUON_H_
#define TANDEM_PARALLEL_OPTIM_MUON_H_

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/status/statusor.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/optimizer_rule.h"

namespace tandem {

// PyTorch's name of Muon's state.
inline constexpr char kMuonState[] = "momentum_buffer";

// Newton-Schulz iteration, in bfloat16: near U V^T where the matrix is
// U S V^T, its singular value decomposition. With the usual coefficients
// singular values come to about 0.7 to 1.2, not to 1. A matrix of zeros stays
// so. [rows, columns] -> the same, bfloat16.
at::Tensor NewtonSchulz(const at::Tensor& matrix, const MuonOptions& options);

// What MuonAdjustment makes of a learning rate.
double AdjustedLearningRate(double learning_rate, MuonAdjustment adjustment,
                            at::IntArrayRef sizes);

// torch.optim.Muon of PyTorch 2.9 and later: the same operators in the same
// order. InvalidArgument for a momentum or coefficients that are out of range,
// negative or non-finite values, an eps that is 0, and ns_steps that are not
// from 0 to 99.
absl::StatusOr<std::unique_ptr<OptimizerRule>> MakeMuon(
    const MuonOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_MUON_H_
