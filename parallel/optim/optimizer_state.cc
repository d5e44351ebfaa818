// The state of an optimizer: what is shown of it, and how it is replaced.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

constexpr double kMostSteps = int64_t{1} << 53;  // a double counts no further

bool EndsInStep(absl::string_view name) {
  return absl::EndsWith(name, absl::StrCat(".", kStepState));
}

absl::StatusOr<int64_t> StepsOf(const StoredTensor& stored) {
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor, stored.read());
  const double steps = tensor.item<float>();
  if (steps >= 0 && steps <= kMostSteps && std::floor(steps) == steps) {
    return static_cast<int64_t>(steps);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer state ", stored.info.name, " is ", steps,
      ", expected a number of steps: whole, from 0 to ", kMostSteps));
}

}  // namespace

std::vector<Optimizer::Place> Optimizer::PlacesInOrder() const {
  std::vector<Place> places;
  for (size_t p = 0; p < parts_.size(); ++p) {
    for (size_t s = 0; s < parts_[p].steps.size(); ++s)
      places.push_back({p, s});
  }
  const auto position = [this](const Place& place) {
    return parts_[place.part].buffer->slots()[place.slot].position;
  };
  std::sort(places.begin(), places.end(), [&](const Place& a, const Place& b) {
    return position(a) < position(b);
  });
  return places;
}

// Views, under full names; "step" is a copy, and the last.
NamedTensors Optimizer::SlotState(const Part& part, size_t slot,
                                  const std::vector<at::Tensor>& states) const {
  const FlatSlot& place = part.buffer->slots()[slot];
  NamedTensors state;
  for (size_t i = 0; i < states.size(); ++i) {
    state.emplace_back(absl::StrCat(place.name, ".", traits_.buffers[i]),
                       part.buffer->View(states[i], place));
  }
  if (traits_.counts_steps) {
    state.emplace_back(absl::StrCat(place.name, ".", kStepState),
                       at::scalar_tensor(part.steps[place.id]));
  }
  return state;
}

NamedTensors Optimizer::SlotForm(const Part& part, size_t slot) const {
  const std::vector<at::Tensor> states(traits_.buffers.size(),
                                       part.buffer->values());
  return SlotState(part, slot, states);
}

// What is shared lies elsewhere then, and nothing can fail.
NamedTensors Optimizer::State() const {
  return *GatherState(
      [](const FlatBuffer&, const at::Tensor&) { return at::Tensor(); });
}

absl::StatusOr<NamedTensors> Optimizer::GatherState(GatherPart gather) const {
  Settle();
  std::vector<std::vector<at::Tensor>> states;  // by part; empty: elsewhere
  std::vector<bool> here;
  for (const Part& part : parts_) {
    states.push_back(part.state);
    here.push_back(true);
    if (!part.is_shared) continue;
    for (at::Tensor& state : states.back()) {
      TANDEM_ASSIGN_OR_RETURN(state, gather(*part.buffer, state));
      here.back() = here.back() && state.defined();
    }
  }
  NamedTensors state;
  for (const Place& place : PlacesInOrder()) {
    const Part& part = parts_[place.part];
    if (!here[place.part]) continue;
    if (part.steps[part.buffer->slots()[place.slot].id] == 0) continue;
    for (auto& each : SlotState(part, place.slot, states[place.part])) {
      state.push_back(std::move(each));
    }
  }
  return state;
}

// What is shared stays: of that each rank has its own part.
absl::Status Optimizer::TakeState(Part& part, FlatBuffer::Exchange exchange) {
  if (part.is_shared) return absl::OkStatus();
  Settle(part);
  for (const at::Tensor& state : part.state) {
    TANDEM_RETURN_IF_ERROR(exchange(state));
  }
  const at::Tensor steps = at::tensor(part.steps, at::kLong);
  TANDEM_RETURN_IF_ERROR(exchange(steps));
  const auto* const taken = steps.const_data_ptr<int64_t>();
  part.steps.assign(taken, taken + steps.numel());
  return absl::OkStatus();
}

// All of a parameter's state, or none of it, is given.
absl::Status Optimizer::CheckSlot(const NamedTensors& wanted,
                                  const StoredByName& given) const {
  for (const auto& [name, tensor] : wanted) {
    const auto found = given.find(name);
    const StoredTensor* source = found == given.end() ? nullptr : found->second;
    if (source == nullptr || source->info.sizes != tensor.sizes() ||
        source->info.dtype != tensor.scalar_type()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "optimizer state ", name, ": expected ", DescribeTensor(tensor),
          ", got ", Describe(source == nullptr ? TensorInfo() : source->info)));
    }
    TANDEM_RETURN_IF_ERROR(Verify(*source));
    if (traits_.counts_steps && EndsInStep(name)) {
      TANDEM_RETURN_IF_ERROR(StepsOf(*source).status());
    }
  }
  return absl::OkStatus();
}

absl::Status Optimizer::CheckState(const StoredTensors& state) const {
  StoredByName given;
  for (const StoredTensor& each : state) given[each.info.name] = &each;
  size_t found = 0;
  std::set<std::string> known;
  for (const Place& place : PlacesInOrder()) {
    const NamedTensors wanted = SlotForm(parts_[place.part], place.slot);
    const bool any =
        std::any_of(wanted.begin(), wanted.end(),
                    [&](const auto& each) { return given.count(each.first); });
    for (const auto& each : wanted) known.insert(each.first);
    if (!any) continue;
    TANDEM_RETURN_IF_ERROR(CheckSlot(wanted, given));
    found += wanted.size();
  }
  if (found == given.size()) return absl::OkStatus();
  for (const auto& each : given) {
    if (known.count(each.first) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer state ", each.first, " has no place here: ", traits_.name,
        " keeps ",
        traits_.buffers.empty() ? "none" : absl::StrJoin(traits_.buffers, ", "),
        " for each trained parameter"));
  }
  return absl::OkStatus();
}

absl::Status Optimizer::LoadState(const StoredTensors& state) {
  Settle();
  TANDEM_RETURN_IF_ERROR(CheckState(state));
  at::NoGradGuard no_grad;
  StoredByName given;
  for (const StoredTensor& each : state) given[each.info.name] = &each;
  for (Part& part : parts_) {
    for (at::Tensor& tensor : part.state) tensor.zero_();
    for (size_t slot = 0; slot < part.steps.size(); ++slot) {
      TANDEM_RETURN_IF_ERROR(LoadSlot(part, slot, given));
    }
  }
  return absl::OkStatus();
}

absl::Status Optimizer::LoadSlot(Part& part, size_t slot,
                                 const StoredByName& given) {
  int64_t& steps = part.steps[part.buffer->slots()[slot].id];
  steps = 0;
  const NamedTensors wanted = SlotForm(part, slot);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto source = given.find(wanted[i].first);
    if (source == given.end()) return absl::OkStatus();
    if (i == part.state.size()) {
      TANDEM_ASSIGN_OR_RETURN(steps, StepsOf(*source->second));
      continue;
    }
    TANDEM_RETURN_IF_ERROR(LoadValues(part, slot, i, *source->second));
    steps = 1;
  }
  return absl::OkStatus();
}

// Of the parameter's those that are kept here.
absl::Status Optimizer::LoadValues(Part& part, size_t slot, size_t state,
                                   const StoredTensor& values) {
  const FlatSlot& place = part.buffer->slots()[slot];
  const at::Tensor& kept = part.state[state];
  if (!part.is_shared) {
    return ReadInto(values, part.buffer->View(kept, place));
  }
  const int64_t begin = std::max(place.offset, part.span.begin);
  const int64_t end = std::min(place.offset + place.numel, part.span.end);
  if (begin >= end) return absl::OkStatus();
  const at::Tensor laid_out = at::empty({place.numel}, kept.options());
  TANDEM_RETURN_IF_ERROR(ReadInto(
      values,
      laid_out.as_strided(place.parameter.sizes(), place.parameter.strides())));
  kept.narrow(0, begin - part.span.begin, end - begin)
      .copy_(laid_out.narrow(0, begin - place.offset, end - begin));
  return absl::OkStatus();
}

}  // namespace tandem
