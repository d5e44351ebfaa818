#include "parallel/strategy/trained_state.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

absl::StatusOr<NamedTensors> TrainedState::OwnState(
    const StateParts& parts, NamedTensors optimizer) const {
  NamedTensors model;
  if (parts.parameters) model = Parameters();
  if (parts.buffers) {
    for (auto& each : Buffers()) model.push_back(std::move(each));
  }
  return CheckpointTensors(model, optimizer);
}

absl::StatusOr<WholeState> TrainedState::GatherState() {
  CollectedTensors parameters, buffers, optimizer;
  TANDEM_RETURN_IF_ERROR(StreamState({true, false, false}, parameters));
  TANDEM_RETURN_IF_ERROR(StreamState({false, true, false}, buffers));
  TANDEM_RETURN_IF_ERROR(StreamState({false, false, true}, optimizer));
  WholeState state = {
      std::move(parameters.tensors), std::move(buffers.tensors), {}};
  for (auto& [name, tensor] : optimizer.tensors) {
    state.optimizer.emplace_back(OptimizerStateName(name), std::move(tensor));
  }
  return state;
}

}  // namespace tandem
