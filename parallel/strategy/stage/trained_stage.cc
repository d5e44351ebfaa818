#include "parallel/strategy/stage/trained_stage.h"

#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "absl/types/variant.h"
#include "core/base/status_macros.h"
#include "core/comm/group_buffer.h"
#include "core/mesh/mesh.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/fully_sharded/shard_unit.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer_rule.h"
#include "parallel/optim/slot_slice.h"
#include "parallel/optim/update_options.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/tensor_parallel/summed_gradients.h"

namespace tandem {
namespace {

OptimizerWork StageWork(const UpdateOptions& update,
                        const NamedTensors& parameters) {
  OptimizerWork work;
  for (const auto& each : UnderFirstNames(parameters)) {
    if (each.second.requires_grad()) work.parameters += each.second.numel();
  }
  work.state_numbers = MostStateNumbers(AllOptimizers(update));
  return work;
}

// Without weights that are tied across stages, all of which go by the same
// names: the strategy's affair.
NamedTensors NotAcross(
    const NamedTensors& parameters,
    const std::map<std::string, std::string>& first_of_copy) {
  std::set<std::string> across;
  for (const auto& [copy, first] : first_of_copy) across.insert({copy, first});
  NamedTensors rest;
  for (const auto& each : parameters) {
    if (across.count(each.first) == 0) rest.push_back(each);
  }
  return rest;
}

// Does what TakeFrom does with all others, before anybody has a share alone.
absl::Status ShardStageBuffer(const TrainedStageOptions& stage,
                              Communicator& replicas, FlatBuffer& buffer) {
  if (stage.ddp.init_sync) {
    TANDEM_RETURN_IF_ERROR(replicas.Broadcast(buffer.values(), /*root=*/0,
                                              [] { return "initial values"; }));
    buffer.CountWrite();
  }
  const std::vector<OptimizerOptions> optimizers = AllOptimizers(stage.update);
  const auto group = static_cast<size_t>(buffer.group());
  if (group < optimizers.size() &&
      absl::holds_alternative<MuonOptions>(optimizers[group])) {
    buffer.ShareWholeParameters();
  }
  return ShardBuffer(stage.shards->groups, stage.shards->options.shards_values,
                     stage.shards->options.shards_gradients, buffer);
}

ReplicaParameterOptions ParameterOptions(
    const TrainedStageOptions& stage, const NamedTensors& parameters,
    const std::map<std::string, std::string>& first_of_copy, bool shares_values,
    Communicator* replicas) {
  ReplicaParameterOptions options;
  options.ddp = WithFirstNames(stage.ddp, parameters);
  options.ddp.optimizer_group =
      GroupOfAny(stage.update.optimizer_group,
                 NamesOfTied(NotAcross(parameters, first_of_copy)));
  options.traits = stage.traits;
  for (const auto& each : parameters) {
    const auto found = first_of_copy.find(each.first);
    if (found != first_of_copy.end()) options.first_of_copy.insert(*found);
  }
  options.shares_values = shares_values;
  if (stage.shards.has_value()) {
    options.shards = stage.shards->groups.reduces->size();
    options.device = stage.shards->device;
    options.shard = [&stage, replicas](FlatBuffer& buffer) {
      return ShardStageBuffer(stage, *replicas, buffer);
    };
    options.unit_of = stage.shards->units.unit_of;
    // What other stages sum has to be there in full.
    for (const auto& [copy, first] : first_of_copy) {
      options.unit_of.erase(copy);
      options.unit_of.erase(first);
    }
  }
  options.alike_group = stage.alike_group;
  return options;
}

// One after the other: sharded ones, and then all others.
class GradientList : public StageGradients {
 public:
  void Add(std::unique_ptr<StageGradients> gradients) {
    all_.push_back(std::move(gradients));
  }

  absl::Status Prepare() override {
    return ForEach([](StageGradients& each) { return each.Prepare(); });
  }
  absl::Status Before(const Action& action, bool last) override {
    return ForEach(
        [&](StageGradients& each) { return each.Before(action, last); });
  }
  absl::Status After(const Action& action, bool last) override {
    return ForEach(
        [&](StageGradients& each) { return each.After(action, last); });
  }
  absl::Status BeforeWeights(const Action& action) override {
    return ForEach(
        [&](StageGradients& each) { return each.BeforeWeights(action); });
  }
  absl::Status Finish() override {
    return ForEach([](StageGradients& each) { return each.Finish(); });
  }

 private:
  absl::Status ForEach(absl::FunctionRef<absl::Status(StageGradients&)> call) {
    for (const auto& each : all_) TANDEM_RETURN_IF_ERROR(call(*each));
    return absl::OkStatus();
  }

  std::vector<std::unique_ptr<StageGradients>> all_;
};

}  // namespace

absl::Status StageReducer::Prepare() {
  has_acted_ = false;
  reducer_->set_synchronise(false);
  return reducer_->PrepareForForward();
}

absl::Status StageReducer::Begin() {
  TANDEM_RETURN_IF_ERROR(reducer_->Finish());  // of those that only gathered
  reducer_->set_synchronise(true);
  reducer_->Begin();
  return absl::OkStatus();
}

absl::Status StageReducer::Before(const Action& /*action*/, bool last) {
  has_acted_ = true;
  return last && !defers_ && !at_end_ && averages_ ? Begin() : absl::OkStatus();
}

absl::Status StageReducer::BeforeWeights(const Action& /*action*/) {
  return defers_ && !at_end_ && averages_ ? Begin() : absl::OkStatus();
}

absl::Status StageReducer::After(const Action& /*action*/, bool last) {
  if (last && !at_end_) reducer_->MarkGathered();
  return absl::OkStatus();
}

absl::Status StageReducer::Finish() {
  if (!has_acted_ && averages_) return reducer_->AddNothing();
  if (averages_ && at_end_) {
    TANDEM_RETURN_IF_ERROR(Begin());
    reducer_->MarkGathered();
  }
  return reducer_->Finish();
}

absl::StatusOr<std::unique_ptr<TrainedStage>> TrainedStage::Create(
    const NamedTensors& parameters, const NamedTensors& buffers,
    const std::map<std::string, std::string>& first_of_copy,
    const TrainedStageOptions& options, Communicator* replicas) {
  auto stage = absl::WrapUnique(new TrainedStage(options));
  stage->sharding_ =
      ChooseSharding(options.sharding, StageWork(options.update, parameters),
                     options.sharers == nullptr ? replicas : options.sharers,
                     options.sharding_excluded_by);
  const bool shards = stage->sharding_.shards;
  TANDEM_ASSIGN_OR_RETURN(stage->parameters_,
                          ReplicaParameters::Create(
                              parameters, buffers,
                              ParameterOptions(options, parameters,
                                               first_of_copy, shards, replicas),
                              replicas));
  // Initial values that a layer has drawn otherwise than by the seed and its
  // name differ between ranks.
  if (options.ddp.init_sync) {
    TANDEM_RETURN_IF_ERROR(stage->parameters_->TakeFrom(
        /*root=*/0, [] { return "initial values"; }));
  }
  TANDEM_RETURN_IF_ERROR(stage->MakeGradients());
  if (options.shards.has_value()) stage->MakeShards();
  if (options.parts != nullptr) stage->SumParts();
  TANDEM_ASSIGN_OR_RETURN(
      stage->update_, ParameterUpdate::Create(
                          options.update, stage->parameters_->all(),
                          [&](const FlatBuffer& buffer) {
                            return shards ? ShareIn(*stage->sharers(), buffer)
                                          : OptimizerShare();
                          }));
  return stage;
}

// Behind what is averaged over replicas.
void TrainedStage::SumParts() {
  std::vector<FlatBuffer*> summed;
  for (FlatBuffer* buffer : parameters_->all()) {
    if (buffer->traits().reduces_over(kTensorAxis)) summed.push_back(buffer);
  }
  if (summed.empty()) return;
  auto list = std::make_unique<GradientList>();
  if (gradients_ != nullptr) list->Add(std::move(gradients_));
  list->Add(
      std::make_unique<SummedGradients>(std::move(summed), *options_.parts));
  gradients_ = std::move(list);
}

void TrainedStage::MakeShards() {
  std::unique_ptr<FullySharded> sharded = FullySharded::Create(
      options_.shards->units, FlatBufferList(parameters_->sharded()),
      options_.shards->groups, options_.shards->options);
  fully_sharded_ = sharded.get();
  auto list = std::make_unique<GradientList>();
  list->Add(std::move(sharded));
  if (gradients_ != nullptr) list->Add(std::move(gradients_));
  gradients_ = std::move(list);
}

absl::Status TrainedStage::MakeGradients() {
  std::vector<FlatBuffer*> at_once = parameters_->averaged_at_once();
  const std::vector<FlatBuffer*> delayed = parameters_->averaged_late();
  if (options_.order.has_value()) {
    for (FlatBuffer* buffer : parameters_->sharded()) {
      at_once.push_back(buffer);
    }
  }
  if (at_once.empty() && delayed.empty()) return absl::OkStatus();
  if (options_.order.has_value()) {
    CHECK(delayed.empty());
    gradients_ = std::make_unique<OrderedGradients>(
        FlatBufferList(at_once), *options_.order, replicas());
    return absl::OkStatus();
  }
  if (replicas() == nullptr) return absl::OkStatus();
  auto reducer = std::make_unique<StageReducer>(parameters_->MakeReducer(),
                                                options_.defers);
  if (options_.hook) {
    TANDEM_RETURN_IF_ERROR(reducer->reducer().SetHook(options_.hook));
  }
  reducer_ = reducer.get();
  gradients_ = std::move(reducer);
  DescribeReplica(options_.ddp, *replicas(), parameters_->averaged(),
                  &logging_);
  return absl::OkStatus();
}

absl::Status TrainedStage::Prepare(const StageStep& step) {
  for (const auto& buffer : parameters_->flat_buffers()) buffer->ZeroGrad();
  if (fully_sharded_ != nullptr) fully_sharded_->set_holds_all(step.at_end);
  if (reducer_ != nullptr) {
    reducer_->set_averages(step.averages);
    // Others' collectives come first, on all replicas.
    reducer_->set_at_end(step.at_end || fully_sharded_ != nullptr);
    Reducer& reducer = reducer_->reducer();
    reducer.set_scatters(sharding_.shards && !step.shows_gradients &&
                         sharers() == replicas() && !reducer.has_hook() &&
                         SharesMemory(*replicas()));
  }
  return gradients_ == nullptr ? absl::OkStatus() : gradients_->Prepare();
}

void TrainedStage::NoteForward(std::chrono::nanoseconds time) {
  if (reducer_ == nullptr) return;
  const Reducer& reducer = reducer_->reducer();
  if (reducer.steps() == logging_.iteration) return;  // nothing was averaged
  if (!HaveCome(reducer.moments())) return;
  logging_.iteration = reducer.steps();
  AddStepTimes(time, AwaitTimes(reducer.moments()), &logging_);
}

std::optional<DdpLoggingData> TrainedStage::logging_data() const {
  if (reducer_ == nullptr) return std::nullopt;
  DdpLoggingData data = logging_;
  DescribeBuckets(reducer_->reducer(), &data);
  return data;
}

absl::Status TrainedStage::ShareBuffers() {
  return options_.ddp.broadcast_buffers ? parameters_->BroadcastBuffers()
                                        : absl::OkStatus();
}

NamedTensors TrainedStage::OptimizerState() const {
  return parameters_->WithoutCopies(update_->optimizer().State());
}

absl::StatusOr<NamedTensors> TrainedStage::GatherOptimizerState() const {
  if (!sharding_.shards) return OptimizerState();
  TANDEM_ASSIGN_OR_RETURN(
      NamedTensors all,
      update_->optimizer().GatherState(
          [this](const FlatBuffer& buffer, const at::Tensor& mine) {
            return GatherOnFirst(buffer, mine, *sharers());
          }));
  return parameters_->WithoutCopies(std::move(all));
}

StatePart TrainedStage::SharedParameters(const NamedTensors& parameters) const {
  StatePart shared;
  for (const FlatBuffer* buffer : parameters_->sharded()) {
    const FlatMemory& memory = buffer->value_memory();
    if (!memory.is_sharded()) continue;
    const FlatShare share = {memory.own(), memory.Own(),
                             sharers()->rank() == 0};
    for (const FlatSlot& slot : buffer->slots()) {
      for (const auto& [name, tensor] : parameters) {
        if (tensor.is_same(slot.parameter)) {
          AddSlice(slot, share, name, &shared);
        }
      }
    }
  }
  return shared;
}

StatePart TrainedStage::SharedOptimizerState() const {
  StatePart shared = update_->optimizer().SharedState();
  shared.tensors = parameters_->WithoutCopies(std::move(shared.tensors));
  return shared;
}

}  // namespace tandem
