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

void ParameterUpdate::ScaleFor(const GradientNorms& norms) {
  for (FlatBuffer* buffer : buffers_) {
    const bool averaged = buffer->traits().reduces_over(kDataAxis);
    ScaleGradients(FlatBufferList({buffer}), clip_norm_,
                   averaged ? norms.averaged : norms.own);
  }
}

absl::Status ParameterUpdate::Step(double learning_rate,
                                   absl::FunctionRef<absl::Status()> clip) {
  for (FlatBuffer* buffer : buffers_) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(FaultPoint("before_optimizer"));
  const TraceScope scope("compute", "optimizer");
  return CatchTorch(
      [&]() -> absl::Status {
        TANDEM_RETURN_IF_ERROR(clip());
        optimizer_.Step(learning_rate);
        return absl::OkStatus();
      },
      "optimizer step");
}

}  // namespace tandem
