// Gradient clipping: gradients kept from growing too large
// (torch.nn.utils.clip_grad_*).

#ifndef TANDEM_PARALLEL_OPTIM_GRADIENT_CLIPPING_H_
#define TANDEM_PARALLEL_OPTIM_GRADIENT_CLIPPING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

struct FlatSlot;

// Parameters without a gradient take no part in what follows. The gradients
// must be complete: after backward, and averaged. To be the same on every rank,
// a norm must be of averaged gradients alone: with parameters_to_ignore that is
// Replica::averaged_flat_buffers().

// The p-norm, p = norm_type, of all gradients of `buffers` together; infinity
// is the greatest magnitude. 0 without gradients. Summed in double and in the
// order of the parameters that the buffers were made of, not in that of the
// buffers: on CPU it depends neither on the layout nor on the number of
// threads. (PyTorch takes the norm of the parameters' norms, in float: the same
// but for its rounding, which was seen to reach 1e-4 of the norm for parameters
// with millions of elements.) Requires norm_type > 0.
double GradientNorm(const FlatBufferList& buffers, double norm_type = 2);

// What such a norm is made of: for each gradient that has elements its
// PowerSums, in the order of positions. Of gradients that are sharded, those of
// the elements that are here (FlatMemory::own).
struct GradientSum {
  const FlatSlot* slot;
  double sum;
};
std::vector<GradientSum> GradientSums(const FlatBufferList& buffers, double p);

// The norm to clip by: NormOfPowerSums of such sums, in the order of a model's
// parameters. OutOfRange where it overflows though no gradient does: scaled by
// that, all of them would be zero.
absl::StatusOr<double> ClippingNorm(const std::vector<double>& sums, double p);

// The same of one buffer for p = 2, in its own order, for later: on its device,
// float64, without the host's waiting for it. Undefined without gradients.
struct GradientSquares {
  std::vector<int64_t> positions;  // of slots
  at::Tensor sums = {};            // [positions.size()]
};
GradientSquares SumSquares(const FlatBuffer& buffer);

// OutOfRange: such a norm, which is not finite, cannot be clipped. `culprit` is
// the parameter whose gradient is not finite.
absl::Status NonFiniteNormError(double norm, double norm_type,
                                const std::string& culprit);

// What clip_grad_norm_ divides gradients by: (norm + 1e-6) / max_norm, or 1 if
// that is less. NaN for a norm that is.
double ClippingDivisor(double max_norm, double norm);

// Scales all gradients so: for a norm that is not of these buffers alone.
void ScaleGradients(const FlatBufferList& buffers, double max_norm,
                    double norm);

// clip_grad_norm_: scales all gradients by max_norm / (norm + 1e-6) if that is
// less than 1. Returns the norm before. One that is not finite makes every
// gradient NaN or zero, as in PyTorch. Requires max_norm > 0.
double ClipGradientNorm(const FlatBufferList& buffers, double max_norm);

// The arguments of clip_grad_norm_, with its defaults.
struct ClipNormOptions {
  double max_norm = 1;  // no default there
  double norm_type = 2;
  bool error_if_nonfinite = false;
};

// The same. InvalidArgument unless max_norm > 0 and norm_type > 0; OutOfRange
// where the norm overflows, and with error_if_nonfinite where a gradient is not
// finite: the message names the first parameter with one. Nothing changes then.
// After averaging this happens on all ranks alike.
absl::StatusOr<double> ClipGradientNorm(const FlatBufferList& buffers,
                                        const ClipNormOptions& options);

// clip_grad_value_: every element into [-clip_value, clip_value]. Requires
// clip_value > 0.
void ClipGradientValue(const FlatBufferList& buffers, double clip_value);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_GRADIENT_CLIPPING_H_
