#include "parallel/pipeline/graphs/stage_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/graph/fixed_tensor.h"

namespace tandem {

absl::StatusOr<StageResult> ForwardOf(PipelineStage& stage,
                                      const StageCall& call) {
  StageResult result;
  if (stage.has_loss()) {
    TANDEM_ASSIGN_OR_RETURN(
        result.score,
        stage.ForwardLoss(call.pass, call.inputs, call.targets, call.weight));
  } else {
    TANDEM_ASSIGN_OR_RETURN(result.outputs,
                            stage.Forward(call.pass, call.inputs));
  }
  return result;
}

std::string FormOfGradients(const StageMessage& gradients) {
  return absl::StrJoin(gradients, " ",
                       [](std::string* out, const at::Tensor& each) {
                         absl::StrAppend(out, FormOfTensor(each));
                       });
}

// Numbers to the last bit.
std::string FormOf(const StageCall& call) {
  std::string form = FormOfGradients(call.inputs);
  absl::StrAppend(&form, " targets ", FormOfTensor(call.targets.targets));
  for (const auto& [name, tensor] : call.targets.further) {
    absl::StrAppend(&form, " ", name, " ", FormOfTensor(tensor));
  }
  const auto bits = [](double number) { return absl::StrFormat("%a", number); };
  absl::StrAppend(&form, " weighs ", bits(call.weight), " ",
                  bits(call.pass.weight), " of ", call.pass.microbatch.count);
  // A number on the device, which a graph reads where it lies.
  const at::Tensor& scale = call.pass.loss_scale;
  if (scale.defined()) {
    absl::StrAppendFormat(&form, " scaled by %p", scale.const_data_ptr());
  }
  return form;
}

}  // namespace tandem
