#include "parallel/ddp/parameter_averaging.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <glog/logging.h>

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/comm/pending_collective.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

constexpr char kValue[] = ".outer_value";
constexpr char kMomentum[] = ".outer_momentum_buffer";

StoredTensors OuterState(const StoredTensors& state) {
  StoredTensors outer;
  for (const StoredTensor& each : state) {
    if (OuterOptimizer::Has(each.info.name)) outer.Add(each);
  }
  return outer;
}

}  // namespace

absl::Status AverageParameters(const FlatBufferList& buffers,
                               Communicator& group) {
  std::vector<PendingCollective> pending;
  for (const FlatBuffer* buffer : buffers) {
    TANDEM_ASSIGN_OR_RETURN(PendingCollective started,
                            StartAllReduceMean(buffer->values(), group));
    pending.push_back(std::move(started));
  }
  absl::Status first;
  for (PendingCollective& each : pending) first.Update(each.Wait());
  for (const FlatBuffer* buffer : buffers) buffer->CountWrite();
  return first;
}

absl::StatusOr<PeriodicParameterAverager> PeriodicParameterAverager::Create(
    const ParameterAveragingOptions& options) {
  if (options.period < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter averaging: period must be at least 1 step, got ",
        options.period));
  }
  if (options.warmup_steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter averaging: warmup_steps must not be negative, got ",
        options.warmup_steps));
  }
  if (!options.outer.has_value()) return PeriodicParameterAverager(options);
  const auto [rate, momentum] = *options.outer;
  if (!(rate > 0) || !std::isfinite(rate) || !(momentum >= 0 && momentum < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter averaging: an outer optimizer needs a learning rate greater "
        "than 0 and a momentum from 0 to less than 1, got ",
        rate, " and ", momentum));
  }
  return PeriodicParameterAverager(options);
}

bool PeriodicParameterAverager::averages_now() const {
  const int64_t apart = step_ - options_.warmup_steps;
  const int64_t due = options_.outer.has_value() ? apart + 1 : apart;
  return !in_warmup() && due % options_.period == 0;
}

absl::Status PeriodicParameterAverager::AfterStep(const FlatBufferList& buffers,
                                                  Communicator& group) {
  const bool average = averages_now();
  ++step_;
  return average ? AverageParameters(buffers, group) : absl::OkStatus();
}

OuterOptimizer::OuterOptimizer(const OuterOptimizerOptions& options,
                               const FlatBufferList& buffers)
    : options_(options) {
  for (FlatBuffer* buffer : buffers) {
    Part part = {buffer, buffer->AddState(), at::Tensor()};
    if (options_.momentum != 0) part.momentum = buffer->AddState();
    parts_.push_back(part);
  }
}

void OuterOptimizer::Begin() {
  if (begun_) return;
  at::NoGradGuard no_grad;
  for (Part& part : parts_) {
    part.values.copy_(part.buffer->values());
    if (part.momentum.defined()) part.momentum.zero_();
  }
  begun_ = true;
}

void OuterOptimizer::Step() {
  CHECK(begun_);
  at::NoGradGuard no_grad;
  for (Part& part : parts_) {
    at::Tensor gradient = part.values - part.buffer->values();
    if (part.momentum.defined()) {
      MultiplyInPlace(part.momentum, options_.momentum);
      part.momentum.add_(gradient);
      gradient.add_(part.momentum, options_.momentum);
    }
    part.values.sub_(gradient, options_.learning_rate);
    part.buffer->values().copy_(part.values);
    part.buffer->CountWrite();
  }
}

NamedTensors OuterOptimizer::AllState() const {
  NamedTensors state;
  for (const Part& part : parts_) {
    for (const FlatSlot& slot : part.buffer->slots()) {
      state.emplace_back(absl::StrCat(slot.name, kValue),
                         part.buffer->View(part.values, slot));
      if (!part.momentum.defined()) continue;
      state.emplace_back(absl::StrCat(slot.name, kMomentum),
                         part.buffer->View(part.momentum, slot));
    }
  }
  return state;
}

NamedTensors OuterOptimizer::State() const {
  return begun_ ? AllState() : NamedTensors();
}

bool OuterOptimizer::Has(const std::string& state_name) {
  return absl::EndsWith(state_name, kValue) ||
         absl::EndsWith(state_name, kMomentum);
}

absl::Status OuterOptimizer::CheckState(const StoredTensors& state) const {
  const StoredTensors outer = OuterState(state);
  return outer.empty() ? absl::OkStatus() : CheckModelState(outer, AllState());
}

absl::Status OuterOptimizer::LoadState(const StoredTensors& state) {
  const StoredTensors outer = OuterState(state);
  begun_ = !outer.empty();
  return begun_ ? CopyModelState(outer, AllState()) : absl::OkStatus();
}

}  // namespace tandem
