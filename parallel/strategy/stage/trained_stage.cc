#include "parallel/strategy/stage/trained_stage.h"

#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/group_buffer.h"
#include "core/mesh/mesh.h"
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
  for (const auto& [name, tensor] : buffers) {
    if (!stage->is_ignored(name)) stage->buffers_.push_back(tensor);
  }
  for (const auto& each : parameters) {
    const auto found = first_of_copy.find(each.first);
    if (found != first_of_copy.end()) stage->first_of_copy_.insert(*found);
  }
  stage->options_.update.optimizer_group =
      GroupOfAny(options.update.optimizer_group,
                 NamesOfTied(NotAcross(parameters, first_of_copy)));
  stage->sharding_ =
      ChooseSharding(options.sharding, WorkOf(options.update, parameters),
                     replicas, options.sharding_excluded_by);
  TANDEM_RETURN_IF_ERROR(stage->Flatten(parameters));
  if (replicas != nullptr && options.ddp.init_sync) {
    TANDEM_RETURN_IF_ERROR(stage->TakeFirsts(parameters));
  }
  TANDEM_RETURN_IF_ERROR(stage->MakeGradients(parameters));
  TANDEM_ASSIGN_OR_RETURN(
      stage->update_, ParameterUpdate::Create(options.update, stage->all(),
                                              [&](const FlatBuffer& buffer) {
                                                return stage->ShareOf(buffer);
                                              }));
  return stage;
}

bool TrainedStage::is_ignored(const std::string& name) const {
  return absl::c_linear_search(options_.ddp.parameters_to_ignore, name);
}

TrainedStage::Part TrainedStage::PartOf(const std::string& name) const {
  if (first_of_copy_.count(name) > 0) return Part::kCopies;
  const bool waits =
      absl::c_linear_search(options_.ddp.delay_all_reduce_named_params, name);
  return waits && !is_ignored(name) ? Part::kDelayed : Part::kOwn;
}

// A copy's are those of its first.
ParameterTraits TrainedStage::TraitsFor(const std::string& name) const {
  const auto copy = first_of_copy_.find(name);
  const std::string& first = copy == first_of_copy_.end() ? name : copy->second;
  ParameterTraits traits = TraitsOf(options_.traits, first);
  const auto& group = options_.update.optimizer_group;
  if (group) traits.optimizer_group = group(first);
  if (is_ignored(first)) traits.reduce_axes.clear();
  return traits;
}

std::vector<FlatBuffer*> TrainedStage::Averaged(
    std::initializer_list<Part> parts) const {
  std::vector<FlatBuffer*> averaged;
  for (FlatBuffer* buffer : ListOf(parts)) {
    if (buffer->traits().reduces_over(kDataAxis)) averaged.push_back(buffer);
  }
  return averaged;
}

FlatBufferList TrainedStage::averaged() const {
  return FlatBufferList(Averaged({Part::kOwn, Part::kDelayed, Part::kCopies}));
}

OptimizerShare TrainedStage::ShareOf(const FlatBuffer& buffer) const {
  return sharding_.shards ? ShareIn(*replicas_, buffer) : OptimizerShare();
}

FlatBuffer::Allocate TrainedStage::SharedMemory(absl::Status* failed) const {
  return [this, failed](int64_t numel, const at::TensorOptions& like) {
    auto buffer = NewGroupBuffer(*replicas_, numel, like);
    if (buffer.ok()) return *std::move(buffer);
    failed->Update(buffer.status());
    return at::zeros({numel}, like);
  };
}

// Each part by itself, in which parameters keep their positions. A tensor is in
// the part of its first name.
absl::Status TrainedStage::Flatten(const NamedTensors& parameters) {
  absl::Status allocated;
  std::set<std::string> firsts;
  for (const auto& each : UnderFirstNames(parameters)) {
    firsts.insert(each.first);
  }
  for (const Part part : {Part::kOwn, Part::kDelayed, Part::kCopies}) {
    FlatBufferOptions flat;
    for (const auto& each : parameters) {
      flat.traits.emplace_back();
      if (firsts.count(each.first) == 0 || PartOf(each.first) != part) continue;
      flat.traits.back() = TraitsFor(each.first);
    }
    if (replicas_ != nullptr) flat.allocate = SharedMemory(&allocated);
    if (sharding_.shards) flat.allocate_values = SharedMemory(&allocated);
    parts_[part] = MakeFlatBuffers(parameters, flat);
  }
  return allocated;
}

// Initial values that a layer has drawn otherwise than by the seed and its name
// differ between replicas.
absl::Status TrainedStage::TakeFirsts(const NamedTensors& parameters) {
  for (const FlatBuffer* buffer : averaged()) {
    TANDEM_RETURN_IF_ERROR(replicas_->Broadcast(
        buffer->values(), /*root=*/0, [] { return "initial values"; }));
    buffer->CountWrite();
  }
  std::vector<at::Tensor> others = buffers_;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad() && !is_ignored(name)) others.push_back(tensor);
  }
  return BroadcastFromRank0(others, *replicas_);
}

absl::Status TrainedStage::MakeGradients(const NamedTensors& parameters) {
  const std::vector<FlatBuffer*> at_once =
      Averaged({Part::kOwn, Part::kCopies});
  const std::vector<FlatBuffer*> delayed = Averaged({Part::kDelayed});
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
  DescribeReplica(options_.ddp, *replicas_, averaged(), &logging_);
  return absl::OkStatus();
}

absl::Status TrainedStage::Prepare(const StageStep& step) {
  for (FlatBuffer* buffer : all()) buffer->ZeroGrad();
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

absl::Status TrainedStage::Update(const std::optional<GradientNorms>& norms,
                                  double learning_rate,
                                  const at::Tensor& found_inf) {
  return update_->Step(learning_rate, norms, found_inf);
}

absl::Status TrainedStage::ShareBuffers() {
  const bool shares = replicas_ != nullptr && options_.ddp.broadcast_buffers;
  if (!shares || buffers_.empty()) return absl::OkStatus();
  return BroadcastFromRank0(buffers_, *replicas_);
}

FlatBufferList TrainedStage::ListOf(std::initializer_list<Part> parts) const {
  std::vector<FlatBuffer*> list;
  for (const Part part : parts) {
    for (const auto& buffer : parts_.at(part)) list.push_back(buffer.get());
  }
  return FlatBufferList(list);
}

FlatBufferList TrainedStage::own() const {
  return ListOf({Part::kOwn, Part::kDelayed});
}

FlatBufferList TrainedStage::all() const {
  return ListOf({Part::kOwn, Part::kDelayed, Part::kCopies});
}

}  // namespace tandem
