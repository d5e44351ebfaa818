#include "parallel/strategy/stage/trained_stage.h"

#include <glog/logging.h>

#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "core/base/status_macros.h"
#include "core/comm/group_buffer.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer_rule.h"
#include "parallel/optim/update_options.h"
#include "parallel/sharding/optimizer_sharding.h"

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

ReplicaParameterOptions ParameterOptions(
    const TrainedStageOptions& stage, const NamedTensors& parameters,
    const std::map<std::string, std::string>& first_of_copy,
    bool shares_values) {
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
  options.alike_group = stage.alike_group;
  return options;
}

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
                     replicas, options.sharding_excluded_by);
  const bool shards = stage->sharding_.shards;
  TANDEM_ASSIGN_OR_RETURN(
      stage->parameters_,
      ReplicaParameters::Create(
          parameters, buffers,
          ParameterOptions(options, parameters, first_of_copy, shards),
          replicas));
  // Initial values that a layer has drawn otherwise than by the seed and its
  // name differ between ranks.
  if (options.ddp.init_sync) {
    TANDEM_RETURN_IF_ERROR(stage->parameters_->TakeFrom(
        /*root=*/0, [] { return "initial values"; }));
  }
  TANDEM_RETURN_IF_ERROR(stage->MakeGradients());
  TANDEM_ASSIGN_OR_RETURN(
      stage->update_,
      ParameterUpdate::Create(options.update, stage->parameters_->all(),
                              [&](const FlatBuffer& buffer) {
                                return shards ? ShareIn(*replicas, buffer)
                                              : OptimizerShare();
                              }));
  return stage;
}

absl::Status TrainedStage::MakeGradients() {
  const std::vector<FlatBuffer*> at_once = parameters_->averaged_at_once();
  const std::vector<FlatBuffer*> delayed = parameters_->averaged_late();
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
  if (reducer_ != nullptr) {
    reducer_->set_averages(step.averages);
    reducer_->set_at_end(step.at_end);
    Reducer& reducer = reducer_->reducer();
    reducer.set_scatters(sharding_.shards && !step.shows_gradients &&
                         !reducer.has_hook() && SharesMemory(*replicas()));
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
            return GatherOnFirst(buffer, mine, *replicas());
          }));
  return parameters_->WithoutCopies(std::move(all));
}

StatePart TrainedStage::SharedOptimizerState() const {
  StatePart shared = update_->optimizer().SharedState();
  shared.tensors = parameters_->WithoutCopies(std::move(shared.tensors));
  return shared;
}

}  // namespace tandem
