#include "parallel/optim/grouped_optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {

absl::StatusOr<GroupedOptimizer> GroupedOptimizer::Create(
    const std::vector<OptimizerOptions>& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  GroupedOptimizer all;
  std::vector<std::vector<FlatBuffer*>> parts(options.size());
  for (FlatBuffer* buffer : buffers) {
    const auto group = static_cast<size_t>(buffer->group());
    if (group >= options.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", buffer->slots()[0].name, " is in optimizer group ",
          buffer->group(), ", but there are options for ", options.size(),
          " groups, counted from 0"));
    }
    parts[group].push_back(buffer);
    for (const FlatSlot& slot : buffer->slots()) {
      all.groups_[slot.name] = group;
    }
  }
  for (size_t group = 0; group < options.size(); ++group) {
    TANDEM_ASSIGN_OR_RETURN(
        std::unique_ptr<Optimizer> optimizer,
        MakeOptimizer(options[group], FlatBufferList(parts[group]), share_of));
    all.optimizers_.push_back(std::move(optimizer));
  }
  return all;
}

FlatBufferList GroupedOptimizer::buffers() const {
  std::vector<FlatBuffer*> buffers;
  for (const auto& optimizer : optimizers_) {
    for (FlatBuffer* buffer : optimizer->buffers()) buffers.push_back(buffer);
  }
  return FlatBufferList(std::move(buffers));
}

void GroupedOptimizer::Step(double learning_rate,
                            const Optimizer::DivisorOf& divisor_of) {
  for (const auto& optimizer : optimizers_) {
    optimizer->Step(learning_rate, divisor_of);
  }
}

void GroupedOptimizer::StepUnless(const at::Tensor& found_inf,
                                  double learning_rate,
                                  const std::optional<at::Tensor>& divisor) {
  for (const auto& optimizer : optimizers_) {
    optimizer->StepUnless(found_inf, learning_rate, divisor);
  }
}

void GroupedOptimizer::StepDivided(double learning_rate,
                                   const at::Tensor& divisor) {
  for (const auto& optimizer : optimizers_) {
    optimizer->StepDivided(learning_rate, divisor);
  }
}

NamedTensors GroupedOptimizer::State() const {
  NamedTensors state;
  for (const auto& optimizer : optimizers_) {
    for (auto& each : optimizer->State()) state.push_back(std::move(each));
  }
  return state;
}

absl::StatusOr<NamedTensors> GroupedOptimizer::GatherState(
    Optimizer::GatherPart gather) const {
  NamedTensors all;
  for (const auto& optimizer : optimizers_) {
    TANDEM_ASSIGN_OR_RETURN(NamedTensors state, optimizer->GatherState(gather));
    for (auto& each : state) all.push_back(std::move(each));
  }
  return all;
}

std::string ParameterOf(const std::string& state_name) {
  return state_name.substr(0, state_name.rfind('.'));
}

// The first for a name that nobody knows: it will refuse it.
size_t GroupedOptimizer::GroupOf(const std::string& state_name) const {
  const auto found = groups_.find(ParameterOf(state_name));
  return found == groups_.end() ? 0 : found->second;
}

std::vector<StoredTensors> GroupedOptimizer::ByGroup(
    const StoredTensors& state) const {
  std::vector<StoredTensors> parts(optimizers_.size());
  for (const StoredTensor& each : state) {
    parts[GroupOf(each.info.name)].Add(each);
  }
  return parts;
}

absl::Status GroupedOptimizer::CheckState(const StoredTensors& state) const {
  const std::vector<StoredTensors> parts = ByGroup(state);
  for (size_t group = 0; group < parts.size(); ++group) {
    TANDEM_RETURN_IF_ERROR(optimizers_[group]->CheckState(parts[group]));
  }
  return absl::OkStatus();
}

StatePart GroupedOptimizer::SharedState() const {
  StatePart all;
  for (const auto& optimizer : optimizers_) {
    StatePart its = optimizer->SharedState();
    for (auto& each : its.tensors) all.tensors.push_back(std::move(each));
    all.slices.merge(its.slices);
  }
  return all;
}

absl::Status GroupedOptimizer::LoadState(const StoredTensors& state) {
  TANDEM_RETURN_IF_ERROR(CheckState(state));
  const std::vector<StoredTensors> parts = ByGroup(state);
  for (size_t group = 0; group < parts.size(); ++group) {
    TANDEM_RETURN_IF_ERROR(optimizers_[group]->LoadState(parts[group]));
  }
  return absl::OkStatus();
}

}  // namespace tandem
