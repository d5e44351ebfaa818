#include "parallel/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer_rule.h"
#include "parallel/optim/stepped_buffer.h"

namespace tandem {
namespace {

// The fused kernels divide by a float32: what that does not hold is one of
// several.
std::optional<at::Tensor> DivisorFor(const FlatBuffer& buffer,
                                     const Optimizer::Divisor& given) {
  if (const auto* const tensor = absl::get_if<at::Tensor>(&given)) {
    return *tensor;
  }
  double divisor = absl::get<double>(given);
  const at::Tensor grads = buffer.grad_memory().Own();
  if (divisor == 1) return std::nullopt;
  if (grads.scalar_type() == at::kDouble) {
    grads.div_(divisor);
    return std::nullopt;
  }
  for (; std::isfinite(divisor) && divisor > std::numeric_limits<float>::max();
       divisor /= 0x1p100) {
    grads.div_(0x1p100);
  }
  return at::full({}, divisor, grads.options().dtype(at::kFloat));
}

void WarnOfNoEffect(const std::string& optimizer, const FlatBuffer& buffer) {
  LOG_FIRST_N(WARNING, 1)
      << optimizer << " step without effect: no parameter has a gradient ("
      << buffer.slots()[0].name
      << ", ...); was Backward called after ZeroGrad?";
}

StoredByName ByName(const StoredTensors& state) {
  StoredByName given;
  for (const StoredTensor& each : state) given[each.info.name] = &each;
  return given;
}

}  // namespace

std::string ParameterName(const std::string& state_name) {
  return state_name.substr(0, state_name.rfind('.'));
}

Optimizer::Optimizer(std::vector<ParameterGroup> groups,
                     const ShareOfBuffer& share_of) {
  for (ParameterGroup& each : groups) {
    Group& group = groups_.emplace_back();
    group.rule = std::move(each.rule);
    for (FlatBuffer* buffer : each.buffers) {
      group.buffers.push_back(std::make_unique<SteppedBuffer>(
          *buffer, *group.rule,
          share_of ? share_of(*buffer) : OptimizerShare()));
    }
  }
}

Optimizer::~Optimizer() = default;

const std::string& Optimizer::name() const {
  return groups_.front().rule->traits().name;
}

FlatBufferList Optimizer::buffers() const {
  std::vector<FlatBuffer*> buffers;
  for (const Group& group : groups_) {
    for (const auto& each : group.buffers) buffers.push_back(&each->buffer());
  }
  return FlatBufferList(std::move(buffers));
}

int64_t Optimizer::StepUnless(const at::Tensor& found_inf, double learning_rate,
                              const DivisorOf& divisor_of) {
  const at::NoGradGuard no_grad;
  if (!found_inf.defined()) Settle();
  int64_t stepped = 0;
  for (const Group& group : groups_) {
    const int64_t before = stepped;
    for (const auto& each : group.buffers) {
      std::optional<at::Tensor> divisor;
      if (divisor_of) {
        divisor = DivisorFor(each->buffer(), divisor_of(each->buffer()));
      }
      stepped += each->Step(learning_rate, divisor, found_inf);
    }
    if (stepped == before && !group.buffers.empty()) {
      WarnOfNoEffect(group.rule->traits().name,
                     group.buffers.front()->buffer());
    }
  }
  return stepped;
}

void Optimizer::Settle() const {
  for (const Group& group : groups_) {
    for (const auto& each : group.buffers) each->Settle();
  }
}

std::vector<Optimizer::Place> Optimizer::PlacesInOrder(const Group& group) {
  std::vector<Place> places;
  for (size_t i = 0; i < group.buffers.size(); ++i) {
    SteppedBuffer* const buffer = group.buffers[i].get();
    for (size_t slot = 0; slot < buffer->size(); ++slot) {
      places.push_back({buffer, i, slot});
    }
  }
  const auto position = [](const Place& place) {
    return place.buffer->buffer().slots()[place.slot].position;
  };
  std::sort(places.begin(), places.end(), [&](const Place& a, const Place& b) {
    return position(a) < position(b);
  });
  return places;
}

// What is shared lies elsewhere then, and nothing can fail.
NamedTensors Optimizer::State() const {
  return *GatherState(
      [](const FlatBuffer&, const at::Tensor&) { return at::Tensor(); });
}

absl::StatusOr<NamedTensors> Optimizer::GatherState(GatherPart gather) const {
  Settle();
  NamedTensors state;
  for (const Group& group : groups_) {
    TANDEM_RETURN_IF_ERROR(GatherState(group, gather, &state));
  }
  return state;
}

absl::Status Optimizer::GatherState(const Group& group, GatherPart gather,
                                    NamedTensors* state) {
  std::vector<std::vector<at::Tensor>> states;  // by buffer
  std::vector<bool> here;                       // else they are elsewhere
  for (const auto& each : group.buffers) {
    states.push_back(each->state());
    here.push_back(true);
    if (!each->is_shared()) continue;
    for (at::Tensor& part : states.back()) {
      TANDEM_ASSIGN_OR_RETURN(part, gather(each->buffer(), part));
      here.back() = here.back() && part.defined();
    }
  }
  for (const Place& place : PlacesInOrder(group)) {
    if (!here[place.number] || place.buffer->steps(place.slot) == 0) continue;
    for (auto& each :
         place.buffer->SlotState(place.slot, states[place.number])) {
      state->push_back(std::move(each));
    }
  }
  return absl::OkStatus();
}

StatePart Optimizer::SharedState() const {
  Settle();
  StatePart shared;
  for (const Group& group : groups_) {
    for (const Place& place : PlacesInOrder(group)) {
      if (!place.buffer->is_shared()) continue;
      if (place.buffer->steps(place.slot) == 0) continue;
      place.buffer->AddShare(place.slot, &shared);
    }
  }
  return shared;
}

std::vector<StoredTensors> Optimizer::ByGroup(
    const StoredTensors& state) const {
  std::map<std::string, size_t> group_of;  // by the parameter's name
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (const auto& each : groups_[group].buffers) {
      for (const FlatSlot& slot : each->buffer().slots()) {
        group_of[slot.name] = group;
      }
    }
  }
  std::vector<StoredTensors> parts(groups_.size());
  for (const StoredTensor& each : state) {
    const auto found = group_of.find(ParameterName(each.info.name));
    parts[found == group_of.end() ? 0 : found->second].Add(each);
  }
  return parts;
}

absl::Status Optimizer::CheckState(const StoredTensors& state) const {
  const std::vector<StoredTensors> parts = ByGroup(state);
  for (size_t group = 0; group < parts.size(); ++group) {
    TANDEM_RETURN_IF_ERROR(CheckState(groups_[group], parts[group]));
  }
  return absl::OkStatus();
}

// All of a parameter's state, or none of it, is given.
absl::Status Optimizer::CheckState(const Group& group,
                                   const StoredTensors& state) {
  const StoredByName given = ByName(state);
  size_t found = 0;
  std::set<std::string> known;
  for (const Place& place : PlacesInOrder(group)) {
    const NamedTensors wanted = place.buffer->SlotForm(place.slot);
    const bool any =
        std::any_of(wanted.begin(), wanted.end(),
                    [&](const auto& each) { return given.count(each.first); });
    for (const auto& each : wanted) known.insert(each.first);
    if (!any) continue;
    TANDEM_RETURN_IF_ERROR(place.buffer->CheckSlot(wanted, given));
    found += wanted.size();
  }
  if (found == given.size()) return absl::OkStatus();
  const OptimizerTraits& traits = group.rule->traits();
  for (const auto& each : given) {
    if (known.count(each.first) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer state ", each.first, " has no place here: ", traits.name,
        " keeps ",
        traits.buffers.empty() ? "none" : absl::StrJoin(traits.buffers, ", "),
        " for each trained parameter"));
  }
  return absl::OkStatus();
}

absl::Status Optimizer::LoadState(const StoredTensors& state) {
  Settle();
  TANDEM_RETURN_IF_ERROR(CheckState(state));
  const at::NoGradGuard no_grad;
  const StoredByName given = ByName(state);
  for (const Group& group : groups_) {
    for (const auto& each : group.buffers) {
      TANDEM_RETURN_IF_ERROR(each->Load(given));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
