#include "parallel/optim/parameter_update.h"

#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/mesh/mesh.h"
#include "parallel/optim/gradient_clipping.h"

namespace tandem {

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
  return ParameterUpdate(options, buffers, std::move(optimizer));
}

void ParameterUpdate::ClipValues() {
  if (clip_value_ > 0) ClipGradientValue(buffers_, clip_value_);
}

absl::Status ParameterUpdate::Step(double learning_rate,
                                   const std::optional<GradientNorms>& norms) {
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
  return CatchTorch([&] { optimizer_.Step(learning_rate, divisor_of); },
                    "optimizer step");
}

}  // namespace tandem
