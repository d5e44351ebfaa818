#include "parallel/ddp/outer_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <glog/logging.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

constexpr char kValue[] = ".outer_value";
constexpr char kMomentum[] = ".outer_momentum_buffer";

StoredTensors OuterOf(const StoredTensors& state) {
  StoredTensors outer;
  for (const StoredTensor& each : state) {
    if (OuterOptimizer::Has(each.info.name)) outer.Add(each);
  }
  return outer;
}

}  // namespace

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
  const StoredTensors outer = OuterOf(state);
  return outer.empty() ? absl::OkStatus() : CheckModelState(outer, AllState());
}

absl::Status OuterOptimizer::LoadState(const StoredTensors& state) {
  const StoredTensors outer = OuterOf(state);
  begun_ = !outer.empty();
  return begun_ ? CopyModelState(outer, AllState()) : absl::OkStatus();
}

}  // namespace tandem
