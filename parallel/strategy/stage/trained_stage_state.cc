// The state of what is trained of a stage: its optimizers'.

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/mesh/mesh.h"
#include "parallel/optim/grouped_optimizer.h"
#include "parallel/sharding/share_exchange.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {

NamedTensors TrainedStage::AlikeOf(const NamedTensors& parameters) const {
  std::set<const c10::TensorImpl*> own;
  for (const auto& [name, tensor] : parameters) {
    if (is_ignored(name)) own.insert(tensor.unsafeGetTensorImpl());
  }
  for (const FlatBuffer* buffer : all()) {
    if (buffer->traits().reduces_over(kDataAxis)) continue;
    for (const FlatSlot& slot : buffer->slots()) {
      own.insert(slot.parameter.unsafeGetTensorImpl());
    }
  }
  NamedTensors alike;
  for (const auto& each : parameters) {
    if (own.count(each.second.unsafeGetTensorImpl()) == 0) {
      alike.push_back(each);
    }
  }
  return alike;
}

NamedTensors TrainedStage::OptimizerState() const {
  return ToSave(update_->State());
}

absl::StatusOr<NamedTensors> TrainedStage::GatherOptimizerState() const {
  if (!sharding_.shards) return OptimizerState();
  TANDEM_ASSIGN_OR_RETURN(NamedTensors all,
                          update_->GatherState([this](const FlatBuffer& buffer,
                                                      const at::Tensor& mine) {
                            return GatherOnFirst(buffer, mine, *replicas_);
                          }));
  return ToSave(std::move(all));
}

NamedTensors TrainedStage::ToSave(NamedTensors state) const {
  NamedTensors without_copies;
  for (auto& each : state) {
    if (first_of_copy_.count(ParameterOf(each.first)) > 0) continue;
    without_copies.push_back(std::move(each));
  }
  return without_copies;
}

StatePart TrainedStage::SharedOptimizerState() const {
  StatePart shared = update_->SharedState();
  shared.tensors = ToSave(std::move(shared.tensors));
  return shared;
}

absl::Status TrainedStage::CheckState(const StoredTensors& state) const {
  return update_->CheckState(state);
}

absl::Status TrainedStage::LoadState(const StoredTensors& state) {
  return update_->LoadState(state);
}

StoredTensors TrainedStage::StateOf(const StoredTensors& state) const {
  std::multimap<std::string, std::string> names;  // in `state`, here
  for (const FlatBuffer* buffer : all()) {
    for (const FlatSlot& slot : buffer->slots()) {
      const auto copy = first_of_copy_.find(slot.name);
      names.emplace(copy == first_of_copy_.end() ? slot.name : copy->second,
                    slot.name);
    }
  }
  StoredTensors mine;
  for (const StoredTensor& each : state) {
    const std::string& name = each.info.name;
    const std::string parameter = ParameterOf(name);
    const auto range = names.equal_range(parameter);
    for (auto it = range.first; it != range.second; ++it) {
      StoredTensor renamed = each;
      renamed.info.name =
          absl::StrCat(it->second, name.substr(parameter.size()));
      mine.Add(std::move(renamed));
    }
  }
  return mine;
}

}  // namespace tandem
