#include "parallel/optim/parameter_update.h"

#include <ATen/Tensor.h>
#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/mesh/mesh.h"
#include "parallel/optim/device_step.h"
#include "parallel/optim/gradient_clipping.h"

namespace tandem {
namespace {

// What fused optimizers divide gradients by, of FindFactor's, on its device.
at::Tensor DivisorOf(const at::Tensor& factor) {
  constexpr int64_t kAt = offsetof(GradientFactor, factor) / sizeof(float);
  return factor.view(at::kFloat).select(0, kAt).reciprocal();
}

}  // namespace

ParameterUpdate::ParameterUpdate(const UpdateOptions& options,
                                 FlatBufferList buffers,
                                 GroupedOptimizer optimizer)
    : clip_norm_(options.clip_norm),
      clip_value_(options.clip_value),
      buffers_(std::move(buffers)),
      optimizer_(std::move(optimizer)) {}

absl::StatusOr<ParameterUpdate> ParameterUpdate::Create(
    const UpdateOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  TANDEM_RETURN_IF_ERROR(CheckUpdateOptions(options));
  std::vector<OptimizerOptions> groups = {options.optimizer};
  groups.insert(groups.end(), options.further_optimizers.begin(),
                options.further_optimizers.end());
  TANDEM_ASSIGN_OR_RETURN(GroupedOptimizer optimizer,
                          GroupedOptimizer::Create(groups, buffers, share_of));
  const StepKernels* const kernels =
      KernelsFor(options, buffers, optimizer, share_of);
  ParameterUpdate update(options, buffers, std::move(optimizer));
  update.kernels_ = kernels;
  return update;
}

const StepKernels* ParameterUpdate::KernelsFor(
    const UpdateOptions& options, const FlatBufferList& buffers,
    const GroupedOptimizer& optimizer, const ShareOfBuffer& share_of) {
  if (options.clip_norm == 0 || options.clip_norm_type != 2) return nullptr;
  if (options.error_if_nonfinite) return nullptr;
  int averaged = 0;
  int all = 0;
  for (const FlatBuffer* buffer : buffers) {
    if (share_of && !share_of(*buffer).is_whole()) return nullptr;
    averaged += buffer->traits().reduces_over(kDataAxis) ? 1 : 0;
    ++all;
  }
  // Each has a norm of its own.
  if (averaged != 0 && averaged != all) return nullptr;
  const auto kernels = DeviceStepKernels(buffers, optimizer.has_kernels());
  return kernels.ok() ? *kernels : nullptr;
}

void ParameterUpdate::ClipValues() {
  if (clip_value_ > 0) ClipGradientValue(buffers_, clip_value_);
}

void ParameterUpdate::ClipAndStep(double learning_rate,
                                  const at::Tensor& found_inf) {
  FactorOptions factor;
  factor.max_norm = static_cast<float>(clip_norm_);
  factor.skips_nonfinite = false;  // as where the host clips
  const at::Tensor found = GradientFactorOf(buffers_, *kernels_, factor);
  if (found.defined() && found_inf.defined()) {
    optimizer_.StepUnless(found_inf, learning_rate, DivisorOf(found));
  } else if (found.defined()) {
    optimizer_.StepOnDevice(learning_rate, *kernels_, found);
  } else {
    optimizer_.Step(learning_rate);  // says that there is nothing to do
  }
}

absl::Status ParameterUpdate::Step(double learning_rate,
                                   const std::optional<GradientNorms>& norms,
                                   const at::Tensor& found_inf) {
  CHECK(!norms.has_value() || !found_inf.defined());
  for (FlatBuffer* buffer : buffers_) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(FaultPoint("before_optimizer"));
  const TraceScope scope("compute", "optimizer");
  const auto divisor_of = [&](const FlatBuffer& buffer) {
    if (!norms.has_value()) return 1.0;
    const bool averaged = buffer.traits().reduces_over(kDataAxis);
    return ClippingDivisor(clip_norm_, averaged ? norms->averaged : norms->own);
  };
  const bool on_device = !norms.has_value() && kernels_ != nullptr;
  TANDEM_RETURN_IF_ERROR(CatchTorch(
      [&] {
        if (on_device) {
          ClipAndStep(learning_rate, found_inf);
        } else if (found_inf.defined()) {
          optimizer_.StepUnless(found_inf, learning_rate);
        } else {
          optimizer_.Step(learning_rate, divisor_of);
        }
      },
      "optimizer step"));
  return FaultPoint("after_optimizer");
}

}  // namespace tandem
