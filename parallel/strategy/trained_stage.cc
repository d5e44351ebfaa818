#include "parallel/strategy/trained_stage.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/mesh/mesh.h"
#include "parallel/ddp/model_state.h"
#include "parallel/strategy/stage_reducer.h"

namespace tandem {
namespace {

std::string ParameterOf(const std::string& state_name) {
  return state_name.substr(0, state_name.rfind('.'));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainedStage>> TrainedStage::Create(
    const NamedTensors& parameters, const NamedTensors& buffers,
    const std::map<std::string, std::string>& first_of_copy,
    const TrainedStageOptions& options, Communicator* replicas) {
  auto stage = absl::WrapUnique(new TrainedStage(options));
  stage->replicas_ = replicas;
  for (const auto& each : buffers) stage->buffers_.push_back(each.second);
  for (const auto& each : parameters) {
    const auto found = first_of_copy.find(each.first);
    if (found != first_of_copy.end()) stage->first_of_copy_.insert(*found);
  }
  TANDEM_RETURN_IF_ERROR(stage->Flatten(parameters, /*copies=*/false));
  TANDEM_RETURN_IF_ERROR(stage->Flatten(parameters, /*copies=*/true));
  TANDEM_RETURN_IF_ERROR(stage->TakeFirsts(parameters));
  TANDEM_RETURN_IF_ERROR(stage->MakeGradients());
  TANDEM_ASSIGN_OR_RETURN(
      stage->update_, ParameterUpdate::Create(options.update, stage->all()));
  return stage;
}

ParameterTraits TrainedStage::TraitsFor(const std::string& name) const {
  ParameterTraits traits = TraitsOf(options_.traits, name);
  const auto& group = options_.update.optimizer_group;
  if (group) traits.optimizer_group = group(name);
  return traits;
}

std::vector<FlatBuffer*> TrainedStage::Averaged() const {
  std::vector<FlatBuffer*> averaged;
  for (FlatBuffer* buffer : all()) {
    if (buffer->traits().reduces_over(kDataAxis)) averaged.push_back(buffer);
  }
  return averaged;
}

// Of the parameters, which keep their positions, the copies or the others.
absl::Status TrainedStage::Flatten(const NamedTensors& parameters,
                                   bool copies) {
  absl::Status allocated;
  FlatBufferOptions flat;
  for (const auto& each : parameters) {
    const auto copy = first_of_copy_.find(each.first);
    const bool is_copy = copy != first_of_copy_.end();
    const std::string& name = is_copy ? copy->second : each.first;
    flat.traits.emplace_back();
    if (is_copy == copies) flat.traits.back() = TraitsFor(name);
  }
  if (replicas_ != nullptr) {
    flat.allocate = [&](int64_t numel, const at::TensorOptions& like) {
      auto buffer = replicas_->NewBuffer(numel, like);
      if (buffer.ok()) return *std::move(buffer);
      allocated.Update(buffer.status());
      return at::zeros({numel}, like);
    };
  }
  (copies ? copies_ : own_) = MakeFlatBuffers(parameters, flat);
  return allocated;
}

// Initial values that a layer has drawn otherwise than by the seed and its name
// differ between replicas.
absl::Status TrainedStage::TakeFirsts(const NamedTensors& parameters) {
  if (replicas_ == nullptr) return absl::OkStatus();
  for (const FlatBuffer* buffer : Averaged()) {
    TANDEM_RETURN_IF_ERROR(replicas_->Broadcast(
        buffer->values(), /*root=*/0, [] { return "initial values"; }));
  }
  std::vector<at::Tensor> others = buffers_;
  for (const auto& each : parameters) {
    if (!each.second.requires_grad()) others.push_back(each.second);
  }
  return BroadcastFromRank0(others, *replicas_);
}

absl::Status TrainedStage::MakeGradients() {
  const std::vector<FlatBuffer*> averaged = Averaged();
  if (averaged.empty()) return absl::OkStatus();
  if (options_.order.has_value()) {
    gradients_ = std::make_unique<OrderedGradients>(FlatBufferList(averaged),
                                                    *options_.order, replicas_);
    return absl::OkStatus();
  }
  if (replicas_ == nullptr) return absl::OkStatus();
  auto reducer = std::make_unique<StageReducer>(
      averaged, *replicas_, options_.reducer, options_.defers);
  if (options_.hook) {
    TANDEM_RETURN_IF_ERROR(reducer->SetHook(options_.hook));
  }
  gradients_ = std::move(reducer);
  return absl::OkStatus();
}

absl::Status TrainedStage::Prepare() {
  for (FlatBuffer* buffer : all()) buffer->ZeroGrad();
  return gradients_ == nullptr ? absl::OkStatus() : gradients_->Prepare();
}

absl::Status TrainedStage::Update(std::optional<double> norm,
                                  double learning_rate) {
  return update_->Step(learning_rate, [&] {
    if (norm.has_value()) update_->ScaleFor(*norm);
    return absl::OkStatus();
  });
}

absl::Status TrainedStage::ShareBuffers() {
  const bool shares = replicas_ != nullptr && options_.broadcast_buffers;
  if (!shares || buffers_.empty()) return absl::OkStatus();
  return BroadcastFromRank0(buffers_, *replicas_);
}

FlatBufferList TrainedStage::all() const {
  std::vector<FlatBuffer*> all;
  for (const FlatBuffers* each : {&own_, &copies_}) {
    for (const auto& buffer : *each) all.push_back(buffer.get());
  }
  return FlatBufferList(all);
}

NamedTensors TrainedStage::OptimizerState() const {
  NamedTensors state;
  for (auto& each : update_->State()) {
    if (first_of_copy_.count(ParameterOf(each.first)) > 0) continue;
    state.push_back(std::move(each));
  }
  return state;
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
