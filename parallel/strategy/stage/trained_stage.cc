#include "parallel/strategy/stage/trained_stage.h"

#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "core/base/status_macros.h"
#include "core/comm/group_buffer.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/optim/group_of_names.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/sharding/share_exchange.h"

namespace tandem {
namespace {

OptimizerWork WorkOf(const UpdateOptions& update,
                     const NamedTensors& parameters) {
  OptimizerWork work;
  for (const auto& each : UnderFirstNames(parameters)) {
    if (each.second.requires_grad()) work.parameters += each.second.numel();
  }
  work.state_numbers = StateNumbers(update.optimizer);
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

}  // namespace

absl::StatusOr<std::unique_ptr<TrainedStage>> TrainedStage::Create(
    const NamedTensors& parameters, const NamedTensors& buffers,
    const std::map<std::string, std::string>& first_of_copy,
    const TrainedStageOptions& options, Communicator* replicas) {
  auto stage = absl::WrapUnique(new TrainedStage(options));
  stage->options_.ddp = WithFirstNames(options.ddp, parameters);
  stage->replicas_ = replicas;
  stage->sharding_ =
      ChooseSharding(options.sharding, WorkOf(options.update, parameters),
                     replicas, options.sharding_excluded_by);
  TANDEM_RETURN_IF_ERROR(stage->Flatten(parameters, first_of_copy));
  for (const auto& [name, tensor] : buffers) {
    if (!stage->parameters_->is_ignored(name)) {
      stage->buffers_.push_back(tensor);
    }
  }
  if (replicas != nullptr && options.ddp.init_sync) {
    TANDEM_RETURN_IF_ERROR(stage->TakeFirsts(parameters));
  }
  TANDEM_RETURN_IF_ERROR(stage->MakeGradients(parameters));
  TANDEM_ASSIGN_OR_RETURN(
      stage->update_,
      ParameterUpdate::Create(
          options.update, stage->parameters_->all(),
          [&](const FlatBuffer& buffer) { return stage->ShareOf(buffer); }));
  return stage;
}

OptimizerShare TrainedStage::ShareOf(const FlatBuffer& buffer) const {
  return sharding_.shards ? ShareIn(*replicas_, buffer) : OptimizerShare();
}

absl::Status TrainedStage::Flatten(
    const NamedTensors& parameters,
    const std::map<std::string, std::string>& first_of_copy) {
  StageParameterOptions options;
  options.traits = options_.traits;
  options.optimizer_group =
      GroupOfAny(options_.update.optimizer_group,
                 NamesOfTied(NotAcross(parameters, first_of_copy)));
  options.ignored = options_.ddp.parameters_to_ignore;
  options.delayed = options_.ddp.delay_all_reduce_named_params;
  for (const auto& each : parameters) {
    const auto found = first_of_copy.find(each.first);
    if (found != first_of_copy.end()) options.first_of_copy.insert(*found);
  }
  absl::Status allocated;
  const auto shared = [&](int64_t numel, const at::TensorOptions& like) {
    auto buffer = NewGroupBuffer(*replicas_, numel, like);
    if (buffer.ok()) return *std::move(buffer);
    allocated.Update(buffer.status());
    return at::zeros({numel}, like);
  };
  FlatBufferOptions memory;
  if (replicas_ != nullptr) memory.allocate = shared;
  if (sharding_.shards) memory.allocate_values = shared;
  parameters_.emplace(parameters, std::move(options), memory);
  return allocated;
}

// Initial values that a layer has drawn otherwise than by the seed and its name
// differ between replicas.
absl::Status TrainedStage::TakeFirsts(const NamedTensors& parameters) {
  for (const FlatBuffer* buffer : parameters_->averaged()) {
    TANDEM_RETURN_IF_ERROR(replicas_->Broadcast(
        buffer->values(), /*root=*/0, [] { return "initial values"; }));
    buffer->CountWrite();
  }
  std::vector<at::Tensor> others = buffers_;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.requires_grad() || parameters_->is_ignored(name)) continue;
    others.push_back(tensor);
  }
  return BroadcastFromRank0(others, *replicas_);
}

absl::Status TrainedStage::MakeGradients(const NamedTensors& parameters) {
  const std::vector<FlatBuffer*> at_once = parameters_->averaged_at_once();
  const std::vector<FlatBuffer*> delayed = parameters_->averaged_late();
  if (at_once.empty() && delayed.empty()) return absl::OkStatus();
  if (options_.order.has_value()) {
    CHECK(delayed.empty());
    gradients_ = std::make_unique<OrderedGradients>(FlatBufferList(at_once),
                                                    *options_.order, replicas_);
    return absl::OkStatus();
  }
  if (replicas_ == nullptr) return absl::OkStatus();
  ReducerOptions options = ReducerOptionsOf(options_.ddp, parameters);
  options.delayed = delayed;
  auto reducer = std::make_unique<StageReducer>(
      at_once, *replicas_, std::move(options), options_.defers);
  if (options_.hook) {
    TANDEM_RETURN_IF_ERROR(reducer->SetHook(options_.hook));
  }
  reducer_ = reducer.get();
  gradients_ = std::move(reducer);
  DescribeReplica(options_.ddp, *replicas_, parameters_->averaged(), &logging_);
  return absl::OkStatus();
}

absl::Status TrainedStage::Prepare(const StageStep& step) {
  for (FlatBuffer* buffer : parameters_->all()) buffer->ZeroGrad();
  if (reducer_ != nullptr) {
    reducer_->set_averages(step.averages);
    reducer_->set_at_end(step.at_end);
    reducer_->set_scatters(sharding_.shards && !step.shows_gradients &&
                           !reducer_->has_hook() && SharesMemory(*replicas_));
  }
  return gradients_ == nullptr ? absl::OkStatus() : gradients_->Prepare();
}

void TrainedStage::NoteForward(std::chrono::nanoseconds time) {
  if (reducer_ == nullptr) return;
  const Reducer& reducer = reducer_->reducer();
  if (reducer.steps() == logging_.iteration) return;  // nothing was averaged
  if (!HaveCome(reducer.moments())) return;
  logging_.iteration = reducer.steps();
  AddStepTimes(time, TimesOf(reducer.moments()), &logging_);
}

std::optional<DdpLoggingData> TrainedStage::logging_data() const {
  if (reducer_ == nullptr) return std::nullopt;
  DdpLoggingData data = logging_;
  DescribeBuckets(reducer_->reducer(), &data);
  return data;
}

absl::Status TrainedStage::ShareBuffers() {
  const bool shares = replicas_ != nullptr && options_.ddp.broadcast_buffers;
  if (!shares || buffers_.empty()) return absl::OkStatus();
  return BroadcastFromRank0(buffers_, *replicas_);
}

NamedTensors TrainedStage::OptimizerState() const {
  return parameters_->WithoutCopies(update_->State());
}

absl::StatusOr<NamedTensors> TrainedStage::GatherOptimizerState() const {
  if (!sharding_.shards) return OptimizerState();
  TANDEM_ASSIGN_OR_RETURN(NamedTensors all,
                          update_->GatherState([this](const FlatBuffer& buffer,
                                                      const at::Tensor& mine) {
                            return GatherOnFirst(buffer, mine, *replicas_);
                          }));
  return parameters_->WithoutCopies(std::move(all));
}

StatePart TrainedStage::SharedOptimizerState() const {
  StatePart shared = update_->SharedState();
  shared.tensors = parameters_->WithoutCopies(std::move(shared.tensors));
  return shared;
}

}  // namespace tandem
