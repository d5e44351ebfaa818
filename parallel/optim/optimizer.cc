#include "parallel/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/describe_tensor.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"

namespace tandem {
namespace {

constexpr char kStep[] = "step";

constexpr double kMostSteps = int64_t{1} << 53;  // a double counts no further

bool EndsInStep(absl::string_view name) {
  return absl::EndsWith(name, absl::StrCat(".", kStep));
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

Optimizer::Optimizer(Traits traits, const FlatBufferList& buffers)
    : traits_(std::move(traits)) {
  for (FlatBuffer* buffer : buffers) {
    Part part;
    part.buffer = buffer;
    part.steps.resize(buffer->slots().size());
    for (size_t i = 0; i < traits_.buffers.size(); ++i) {
      part.state.push_back(buffer->AddState());
    }
    parts_.push_back(std::move(part));
  }
}

FlatBufferList Optimizer::buffers() const {
  std::vector<FlatBuffer*> buffers;
  for (const Part& part : parts_) buffers.push_back(part.buffer);
  return FlatBufferList(std::move(buffers));
}

int64_t Optimizer::Step(double learning_rate) {
  at::NoGradGuard no_grad;
  int64_t stepped = 0;
  for (Part& part : parts_) stepped += StepPart(part, learning_rate);
  if (stepped == 0 && !parts_.empty()) {
    LOG_FIRST_N(WARNING, 1)
        << traits_.name << " step without effect: no parameter has a gradient ("
        << parts_[0].buffer->slots()[0].name
        << ", ...); was Backward called after ZeroGrad?";
  }
  return stepped;
}

int64_t Optimizer::NextSteps(int64_t steps) const {
  return traits_.counts_steps ? steps + 1 : 1;
}

int64_t Optimizer::StepPart(Part& part, double learning_rate) {
  const std::vector<FlatSlot>& slots = part.buffer->slots();
  int64_t stepped = 0;
  for (size_t begin = 0; begin < slots.size();) {
    size_t end = begin;
    while (end < slots.size() && part.buffer->has_gradient(end) &&
           part.steps[slots[end].id] == part.steps[slots[begin].id]) {
      ++end;
    }
    if (end == begin) {
      ++begin;
      continue;
    }
    // Whole slots, padding included: kernels then see whole vectors, and a
    // value's bits do not depend on the run that it is part of.
    const int64_t from = slots[begin].offset;
    const int64_t length = slots[end - 1].end - from;
    Range range{part.buffer->values().narrow(0, from, length),
                part.buffer->grads().narrow(0, from, length),
                {},
                part.steps[slots[begin].id]};
    for (const at::Tensor& state : part.state) {
      range.state.push_back(state.narrow(0, from, length));
    }
    if (length > 0) StepRange(range, learning_rate);
    stepped += static_cast<int64_t>(end - begin);
    for (; begin < end; ++begin) {
      part.buffer->CountWrite(begin);
      int64_t& steps = part.steps[slots[begin].id];
      steps = NextSteps(steps);
    }
  }
  return stepped;
}

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
NamedTensors Optimizer::SlotState(const Part& part, size_t slot) const {
  const FlatSlot& place = part.buffer->slots()[slot];
  NamedTensors state;
  for (size_t i = 0; i < part.state.size(); ++i) {
    state.emplace_back(absl::StrCat(place.name, ".", traits_.buffers[i]),
                       part.buffer->View(part.state[i], place));
  }
  if (traits_.counts_steps) {
    state.emplace_back(absl::StrCat(place.name, ".", kStep),
                       at::scalar_tensor(part.steps[place.id]));
  }
  return state;
}

NamedTensors Optimizer::State() const {
  NamedTensors state;
  for (const Place& place : PlacesInOrder()) {
    const Part& part = parts_[place.part];
    if (part.steps[part.buffer->slots()[place.slot].id] == 0) continue;
    for (auto& each : SlotState(part, place.slot)) {
      state.push_back(std::move(each));
    }
  }
  return state;
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
    const NamedTensors wanted = SlotState(parts_[place.part], place.slot);
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
  const FlatSlot& place = part.buffer->slots()[slot];
  int64_t& steps = part.steps[place.id];
  steps = 0;
  for (const auto& [name, view] : SlotState(part, slot)) {
    const auto source = given.find(name);
    if (source == given.end()) return absl::OkStatus();
    if (traits_.counts_steps && EndsInStep(name)) {
      TANDEM_ASSIGN_OR_RETURN(steps, StepsOf(*source->second));
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, source->second->read());
    view.copy_(values);
    steps = 1;
  }
  return absl::OkStatus();
}

}  // namespace tandem
