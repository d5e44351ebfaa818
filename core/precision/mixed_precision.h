// Mixed precision: which dtypes a model computes, reduces and keeps buffers in.

#ifndef TANDEM_CORE_PRECISION_MIXED_PRECISION_H_
#define TANDEM_CORE_PRECISION_MIXED_PRECISION_H_

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensors.h"

namespace tandem {

// Names of torch.distributed.fsdp.MixedPrecision. Parameters themselves,
// gradients and the optimizer's state are fp32 whatever is said here: master
// weights, which checkpoints hold. docs/training.md tells more.
struct MixedPrecision {
  // Products and activations, by autocast (core/precision/autocast.h), with
  // copies of the parameters: bf16 or fp16. Unset: fp32.
  std::optional<c10::ScalarType> param_dtype;
  // Gradients on their way between replicas: bf16 or fp16. Unset: fp32.
  std::optional<c10::ScalarType> reduce_dtype;
  // Floating-point buffers, but those of BatchNorm: bf16 or fp16. Unset: fp32.
  std::optional<c10::ScalarType> buffer_dtype;
};

// InvalidArgument names the option whose dtype is none of those.
absl::Status CheckMixedPrecision(const MixedPrecision& precision);

// "fp32" (nothing), "bf16" or "fp16". InvalidArgument for other names.
absl::StatusOr<std::optional<c10::ScalarType>> PrecisionOfName(
    absl::string_view name);
std::string PrecisionName(std::optional<c10::ScalarType> dtype);

// "params bf16, gradients fp32 between replicas, buffers fp32".
std::string Describe(const MixedPrecision& precision);

// In words, why computing in `dtype` will be slow on this processor; empty if
// it has instructions for it.
std::string WhySlowOnThisProcessor(c10::ScalarType dtype);

// Gives a module's buffers, where they lie in the module, values of `dtype`:
// those that are floating-point, but for BatchNorm's running statistics
// ("...running_mean", "...running_var"), whose means of many batches bf16
// cannot hold (PyTorch leaves them out, too).
void CastBuffers(const NamedTensors& buffers, c10::ScalarType dtype);

}  // namespace tandem

#endif  // TANDEM_CORE_PRECISION_MIXED_PRECISION_H_
