#include "parallel/ddp/replica_parameters.h"

#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_buffer.h"
#include "core/device/memory_category.h"
#include "core/flight/recorder.h"
#include "core/mesh/mesh.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

// Where parameters are sharded all are left where they were made at first.
void BringToDevice(const ReplicaParameterOptions& options,
                   at::Tensor parameter) {
  if (options.shard == nullptr) return;
  const MemoryCategoryScope scope(MemoryCategory::kTemporaries);
  parameter.set_data(parameter.data().to(options.device));
}

}  // namespace

ReplicaParameters::ReplicaParameters(ReplicaParameterOptions options,
                                     Communicator* replicas)
    : options_(std::move(options)), replicas_(replicas) {}

absl::StatusOr<std::unique_ptr<ReplicaParameters>> ReplicaParameters::Create(
    const NamedTensors& parameters, const NamedTensors& buffers,
    ReplicaParameterOptions options, Communicator* replicas) {
  auto made =
      absl::WrapUnique(new ReplicaParameters(std::move(options), replicas));
  for (const auto& [name, tensor] : buffers) {
    if (!made->is_ignored(name)) made->buffers_.push_back(tensor);
  }
  for (const auto& [name, tensor] : UnderFirstNames(parameters)) {
    if (tensor.requires_grad() || made->is_ignored(name)) continue;
    made->frozen_.emplace_back(name, tensor);
  }
  made->reducer_options_ = MakeReducerOptions(made->options_.ddp, parameters);
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { return made->Flatten(parameters); }));
  return made;
}

// Each kind by itself, in which parameters keep their positions. A tensor is of
// the kind of its first name.
absl::Status ReplicaParameters::Flatten(const NamedTensors& parameters) {
  TANDEM_RETURN_IF_ERROR(FlattenSharded(parameters));
  std::set<std::string> firsts;
  for (const auto& each : UnderFirstNames(parameters)) {
    firsts.insert(each.first);
  }
  absl::Status allocated;
  const auto shared = [&](int64_t numel, const at::TensorOptions& like) {
    auto buffer = NewGroupBuffer(*replicas_, numel, like);
    if (buffer.ok()) return *std::move(buffer);
    allocated.Update(buffer.status());
    return at::zeros({numel}, like);
  };
  for (const Kind kind :
       {Kind::kAtOnce, Kind::kDelayed, Kind::kIgnored, Kind::kCopies}) {
    FlatBufferOptions flat;
    // What each replica has for itself may be of another size on each.
    if (replicas_ != nullptr && kind != Kind::kIgnored) {
      flat.allocate = shared;
      if (options_.shares_values) flat.allocate_values = shared;
    }
    for (const auto& each : parameters) {
      flat.traits.emplace_back();
      if (firsts.count(each.first) == 0 || ParameterKind(each.first) != kind)
        continue;
      flat.traits.back() = TraitsFor(each.first);
      if (each.second.requires_grad()) BringToDevice(options_, each.second);
    }
    for (auto& buffer : MakeFlatBuffers(parameters, flat)) {
      flat_.push_back(std::move(buffer));
      kinds_.push_back(kind);
    }
  }
  return allocated;
}

// No device has more than a unit's in full.
absl::Status ReplicaParameters::FlattenSharded(const NamedTensors& parameters) {
  FlatBufferOptions flat;
  flat.shares = options_.shards;
  std::map<size_t, std::vector<size_t>> units;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].first;
    const auto unit = options_.unit_of.find(name);
    if (unit == options_.unit_of.end()) continue;
    if (ParameterKind(name) == Kind::kSharded) units[unit->second].push_back(i);
  }
  for (const auto& unit : units) {
    flat.traits.assign(parameters.size(), std::nullopt);
    for (const size_t i : unit.second) {
      const auto& [name, tensor] = parameters[i];
      flat.traits[i] = TraitsFor(name);
      BringToDevice(options_, tensor);
    }
    for (auto& buffer : MakeFlatBuffers(parameters, flat)) {
      if (buffer->traits().reduces_over(kDataAxis)) {
        TANDEM_RETURN_IF_ERROR(options_.shard(*buffer));
      }
      flat_.push_back(std::move(buffer));
      kinds_.push_back(Kind::kSharded);
    }
  }
  return absl::OkStatus();
}

bool ReplicaParameters::is_ignored(const std::string& name) const {
  return absl::c_linear_search(options_.ddp.parameters_to_ignore, name);
}

ReplicaParameters::Kind ReplicaParameters::ParameterKind(
    const std::string& name) const {
  if (options_.first_of_copy.count(name) > 0) return Kind::kCopies;
  if (is_ignored(name)) return Kind::kIgnored;
  const bool waits =
      absl::c_linear_search(options_.ddp.delay_all_reduce_named_params, name);
  if (waits) return Kind::kDelayed;
  return options_.unit_of.count(name) > 0 ? Kind::kSharded : Kind::kAtOnce;
}

const std::string& ReplicaParameters::FirstOfCopy(
    const std::string& name) const {
  const auto copy = options_.first_of_copy.find(name);
  return copy == options_.first_of_copy.end() ? name : copy->second;
}

// A copy's are those of its first.
ParameterTraits ReplicaParameters::TraitsFor(const std::string& name) const {
  const std::string& first = FirstOfCopy(name);
  ParameterTraits traits = EffectiveTraits(options_.traits, first);
  const auto& group = options_.ddp.optimizer_group;
  if (group) traits.optimizer_group = group(first);
  if (is_ignored(first)) traits.reduce_axes.clear();
  return traits;
}

std::vector<FlatBuffer*> ReplicaParameters::SelectBuffers(
    std::initializer_list<Kind> kinds) const {
  std::vector<FlatBuffer*> list;
  for (size_t i = 0; i < flat_.size(); ++i) {
    if (absl::c_linear_search(kinds, kinds_[i])) list.push_back(flat_[i].get());
  }
  return list;
}

std::vector<FlatBuffer*> ReplicaParameters::Averaged(
    std::initializer_list<Kind> kinds) const {
  std::vector<FlatBuffer*> averaged;
  for (FlatBuffer* buffer : SelectBuffers(kinds)) {
    if (buffer->traits().reduces_over(kDataAxis)) averaged.push_back(buffer);
  }
  return averaged;
}

FlatBufferList ReplicaParameters::all() const { return FlatBufferList(flat_); }

FlatBufferList ReplicaParameters::own() const {
  return FlatBufferList(SelectBuffers(
      {Kind::kSharded, Kind::kAtOnce, Kind::kDelayed, Kind::kIgnored}));
}

FlatBufferList ReplicaParameters::averaged() const {
  return FlatBufferList(
      Averaged({Kind::kSharded, Kind::kAtOnce, Kind::kDelayed, Kind::kCopies}));
}

FlatBufferList ReplicaParameters::ignored() const {
  return FlatBufferList(SelectBuffers({Kind::kIgnored}));
}

FlatBufferList ReplicaParameters::of_group(int64_t group) const {
  std::vector<FlatBuffer*> buffers;
  for (const auto& buffer : flat_) {
    if (buffer->group() == group) buffers.push_back(buffer.get());
  }
  return FlatBufferList(std::move(buffers));
}

std::vector<FlatBuffer*> ReplicaParameters::averaged_late() const {
  return Averaged({Kind::kDelayed});
}

std::vector<FlatBuffer*> ReplicaParameters::sharded() const {
  return Averaged({Kind::kSharded});
}

std::vector<FlatBuffer*> ReplicaParameters::averaged_at_once() const {
  return Averaged({Kind::kAtOnce, Kind::kCopies});
}

std::unique_ptr<Reducer> ReplicaParameters::MakeReducer(
    std::function<void()> on_begin) const {
  ReducerOptions options = reducer_options_;
  options.delayed = averaged_late();
  options.on_begin = std::move(on_begin);
  return std::make_unique<Reducer>(averaged_at_once(), *replicas_,
                                   std::move(options));
}

Communicator* ReplicaParameters::AlikeGroup(const FlatBuffer& buffer) const {
  if (options_.alike_group) return options_.alike_group(buffer.traits());
  return buffer.traits().reduces_over(kDataAxis) ? replicas_ : nullptr;
}

absl::Status ReplicaParameters::TakeFrom(
    int root, const CollectivePurpose& purpose) const {
  CHECK(!options_.alike_group || root == 0);
  // Trained parameters lie in flat buffers, which need no copies.
  for (const FlatBuffer* buffer : all()) {
    Communicator* const group = AlikeGroup(*buffer);
    // What is sharded was made alike before.
    if (group == nullptr || buffer->value_memory().is_sharded()) continue;
    TANDEM_RETURN_IF_ERROR(group->Broadcast(buffer->values(), root, purpose));
    buffer->CountWrite();
    TANDEM_RETURN_IF_ERROR(buffer->TakeState([&](const at::Tensor& state) {
      return group->Broadcast(state, root, purpose);
    }));
  }
  // What nobody trains all have alike, but for their parts of it.
  std::vector<std::pair<Communicator*, std::vector<at::Tensor>>> others;
  const auto add = [&](const ParameterTraits& traits, const at::Tensor& each) {
    Communicator* const group =
        options_.alike_group ? options_.alike_group(traits) : replicas_;
    const auto known = absl::c_find_if(
        others, [&](const auto& some) { return some.first == group; });
    if (known == others.end()) {
      others.push_back({group, {each}});
    } else {
      known->second.push_back(each);
    }
  };
  for (const auto& [name, tensor] : frozen_) {
    ParameterTraits traits;
    traits.shard = EffectiveTraits(options_.traits, FirstOfCopy(name)).shard;
    add(traits, tensor);
  }
  for (const at::Tensor& each : buffers_) add({}, each);
  for (const auto& [group, tensors] : others) {
    if (group == nullptr) continue;
    TANDEM_RETURN_IF_ERROR(BroadcastFrom(root, tensors, *group, purpose));
  }
  return absl::OkStatus();
}

absl::Status ReplicaParameters::BroadcastBuffers(int root) const {
  if (replicas_ == nullptr) return absl::OkStatus();
  const FlightPurposeScope flight({"buffers"});
  return BroadcastFrom(root, buffers_, *replicas_, [] { return "buffers"; });
}

NamedTensors ReplicaParameters::SelectAlike(
    const NamedTensors& parameters) const {
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

NamedTensors ReplicaParameters::WithoutCopies(NamedTensors state) const {
  NamedTensors without_copies;
  for (auto& each : state) {
    if (options_.first_of_copy.count(ParameterName(each.first)) > 0) continue;
    without_copies.push_back(std::move(each));
  }
  return without_copies;
}

StoredTensors ReplicaParameters::SelectState(const StoredTensors& state) const {
  std::multimap<std::string, std::string> names;  // in `state`, here
  for (const FlatBuffer* buffer : all()) {
    for (const FlatSlot& slot : buffer->slots()) {
      const auto copy = options_.first_of_copy.find(slot.name);
      const bool is_copy = copy != options_.first_of_copy.end();
      names.emplace(is_copy ? copy->second : slot.name, slot.name);
    }
  }
  StoredTensors mine;
  for (const StoredTensor& each : state) {
    const std::string& name = each.info.name;
    const std::string parameter = ParameterName(name);
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
