// What a pipeline holds and how it scores, beside training.

#include <ATen/ops/cat.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "parallel/gathered_tensors.h"
#include "parallel/microbatches.h"
#include "parallel/model_state.h"
#include "parallel/pipelined.h"

namespace tandem {
namespace {

std::string ParameterOf(const std::string& state_name) {
  return state_name.substr(0, state_name.rfind('.'));
}

std::set<std::string> NamesOf(const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& each : tensors) names.insert(each.first);
  return names;
}

}  // namespace

NamedTensors Pipelined::Parameters() const {
  return NamedParameters(executor_->stages());
}

NamedTensors Pipelined::Buffers() const {
  return NamedBuffers(executor_->stages());
}

// Without that of copies, which is the same as the first member's.
NamedTensors Pipelined::OptimizerState() const {
  std::set<std::string> copies;
  for (const auto& each : copies_of_) copies.insert(each.first);
  NamedTensors state;
  for (const auto& part : parts_) {
    for (auto& each : part.second.optimizer->State()) {
      if (copies.count(ParameterOf(each.first)) > 0) continue;
      state.push_back(std::move(each));
    }
  }
  return state;
}

absl::StatusOr<WholeState> Pipelined::GatherState() {
  WholeState state = {Parameters(), Buffers(), OptimizerState()};
  if (pipe_ == nullptr) return state;
  for (NamedTensors* part :
       {&state.parameters, &state.buffers, &state.optimizer}) {
    TANDEM_ASSIGN_OR_RETURN(*part, GatherOnRank0(*part, *pipe_));
  }
  return state;
}

absl::Status Pipelined::LoadModelState(const NamedTensors& state) {
  NamedTensors model = Parameters();
  for (auto& each : Buffers()) model.push_back(std::move(each));
  if (pipe_ == nullptr) return CopyModelState(state, model);
  const std::set<std::string> mine = NamesOf(model);
  NamedTensors wanted;
  for (const auto& each : state) {
    if (mine.count(each.first) > 0) wanted.push_back(each);
  }
  return CopyModelState(wanted, model);
}

// A copy takes what the first member of its group has. State of parameters that
// no part has is for another rank, or for nobody: the first part refuses that.
absl::Status Pipelined::LoadOptimizerState(const NamedTensors& state) {
  std::map<std::string, int> device_of;
  for (const auto& [device, part] : parts_) {
    for (const FlatBuffer* buffer : part.All()) {
      for (const FlatSlot& slot : buffer->slots()) {
        device_of[slot.name] = device;
      }
    }
  }
  std::map<int, NamedTensors> wanted;
  for (const auto& [name, tensor] : state) {
    const std::string parameter = ParameterOf(name);
    const auto found = device_of.find(parameter);
    if (found != device_of.end()) {
      wanted[found->second].emplace_back(name, tensor);
    } else if (pipe_ == nullptr) {
      wanted[parts_.begin()->first].emplace_back(name, tensor);
    }
    for (const auto& [copy, first] : copies_of_) {
      if (first != parameter) continue;
      wanted[device_of.at(copy)].emplace_back(
          absl::StrCat(copy, name.substr(parameter.size())), tensor);
    }
  }
  for (auto& [device, part] : parts_) {
    TANDEM_RETURN_IF_ERROR(part.optimizer->CheckState(wanted[device]));
  }
  for (auto& [device, part] : parts_) {
    TANDEM_RETURN_IF_ERROR(part.optimizer->LoadState(wanted[device]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Inference> Pipelined::Infer(const Batch& batch,
                                           bool keeps_outputs) {
  SetTraining(executor_->stages(), false);
  const std::vector<int64_t> sizes =
      EvenSizes(batch.size, options_.schedule.microbatches);
  const absl::StatusOr<std::vector<Batch>> parts = SplitBatch(batch, sizes);
  absl::StatusOr<Inference> inference =
      parts.ok() ? executor_->Infer(*parts, keeps_outputs) : parts.status();
  if (!inference.ok() && pipe_ != nullptr) pipe_->Abort(inference.status());
  return inference;
}

absl::StatusOr<Score> Pipelined::Evaluate(const Batch& batch) {
  if (batch.size == 0) return Score{};
  const absl::StatusOr<Inference> inference =
      Infer(batch, /*keeps_outputs=*/false);
  if (!inference.ok()) return Annotate(inference.status(), "evaluation");
  return inference->score;
}

absl::StatusOr<at::Tensor> Pipelined::Forward(const Batch& batch) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError("a batch needs at least one sample");
  }
  TANDEM_ASSIGN_OR_RETURN(const Inference inference,
                          Infer(batch, /*keeps_outputs=*/true));
  if (inference.outputs.empty()) return at::Tensor();
  return CatchTorchOr([&] { return at::cat(inference.outputs); });
}

}  // namespace tandem
