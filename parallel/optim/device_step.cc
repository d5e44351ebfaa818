#include "parallel/optim/device_step.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/cuda/step_kernels_of.h"
#include "parallel/optim/gradient_runs.h"

namespace tandem {

absl::StatusOr<const StepKernels*> DeviceStepKernels(
    const FlatBufferList& buffers, bool has_kernels) {
  if (!has_kernels) {
    return absl::FailedPreconditionError(
        "there are no step kernels for the optimizer with these options");
  }
  const at::Tensor* first = nullptr;
  for (const FlatBuffer* buffer : buffers) {
    const at::Tensor& values = buffer->values();
    if (first == nullptr) first = &values;
    if (values.scalar_type() != at::kFloat) {
      return absl::FailedPreconditionError(absl::StrCat(
          "step kernels are for float32, and ", buffer->slots()[0].name, " is ",
          at::toString(values.scalar_type())));
    }
    if (values.device() != first->device()) {
      return absl::FailedPreconditionError(
          absl::StrCat("parameters lie on several devices, ",
                       first->device().str(), " and ", values.device().str()));
    }
  }
  if (first == nullptr) {
    return absl::FailedPreconditionError("there are no parameters");
  }
  const StepKernels* const kernels = StepKernelsOf(first->device().type());
  if (kernels != nullptr) return kernels;
  return absl::FailedPreconditionError(
      absl::StrCat("there are no step kernels for ", first->device().str()));
}

at::Tensor GradientFactorOf(const FlatBufferList& buffers,
                            const StepKernels& kernels,
                            const FactorOptions& options) {
  std::vector<at::Tensor> all;
  for (const FlatBuffer* buffer : buffers) {
    for (at::Tensor& run : RunsOfGradients(*buffer)) {
      all.push_back(std::move(run));
    }
  }
  return all.empty() ? at::Tensor() : kernels.FindFactor(all, options);
}

}  // namespace tandem
