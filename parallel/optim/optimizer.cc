#include "parallel/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tandem {
namespace {

// The fused kernels divide by a float32: what that does not hold is one of
// several.
std::optional<at::Tensor> DivisorFor(const FlatBuffer& buffer, double divisor) {
  const at::Tensor& grads = buffer.grads();
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

}  // namespace

Optimizer::Optimizer(Traits traits, const FlatBufferList& buffers,
                     const ShareOfBuffer& share_of)
    : traits_(std::move(traits)), lives_(std::make_shared<const bool>(true)) {
  for (FlatBuffer* buffer : buffers) {
    Part part;
    part.buffer = buffer;
    part.steps.resize(buffer->slots().size());
    const OptimizerShare share =
        share_of ? share_of(*buffer) : OptimizerShare();
    part.is_shared = !share.is_whole();
    part.is_first = share.rank == 0;
    part.span = SpanOf(*buffer, share);
    for (size_t i = 0; i < traits_.buffers.size(); ++i) {
      part.state.push_back(
          part.is_shared ? buffer->AddStateOf(part.span.begin, part.span.end)
                         : buffer->AddState());
    }
    parts_.push_back(std::move(part));
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].buffer->AddKeeper(lives_,
                                [this, i](FlatBuffer::Exchange exchange) {
                                  return TakeState(parts_[i], exchange);
                                });
  }
}

FlatBufferList Optimizer::buffers() const {
  std::vector<FlatBuffer*> buffers;
  for (const Part& part : parts_) buffers.push_back(part.buffer);
  return FlatBufferList(std::move(buffers));
}

int64_t Optimizer::Step(double learning_rate, const DivisorOf& divisor_of) {
  return StepAll(learning_rate, [&](const FlatBuffer& buffer) {
    return DivisorFor(buffer, divisor_of ? divisor_of(buffer) : 1);
  });
}

int64_t Optimizer::StepDivided(double learning_rate,
                               const at::Tensor& divisor) {
  return StepAll(learning_rate, [&](const FlatBuffer& /*buffer*/) {
    return std::optional<at::Tensor>(divisor);
  });
}

int64_t Optimizer::StepAll(double learning_rate, DivisorTensorOf divisor_of) {
  at::NoGradGuard no_grad;
  Settle();
  int64_t stepped = 0;
  for (Part& part : parts_) {
    stepped +=
        StepPart(part, divisor_of(*part.buffer),
                 [&](const Range& range) { StepRange(range, learning_rate); });
  }
  if (stepped == 0 && !parts_.empty()) {
    WarnOfNoEffect(traits_.name, *parts_[0].buffer);
  }
  return stepped;
}

int64_t Optimizer::StepUnless(const at::Tensor& found_inf, double learning_rate,
                              const std::optional<at::Tensor>& divisor) {
  at::NoGradGuard no_grad;
  int64_t stepped = 0;
  for (Part& part : parts_) {
    BeginUnsettled(part);
    stepped += StepPart(part, divisor, [&](const Range& range) {
      Range its = range;
      its.found_inf = found_inf;
      its.skipped = part.unsettled.skipped;
      StepRange(its, learning_rate);
    });
    part.unsettled.skipped.add_(found_inf);
  }
  if (stepped == 0 && !parts_.empty()) {
    WarnOfNoEffect(traits_.name, *parts_[0].buffer);
  }
  return stepped;
}

int64_t Optimizer::NextSteps(int64_t steps) const {
  return traits_.counts_steps ? steps + 1 : 1;
}

int64_t Optimizer::StepPart(Part& part,
                            const std::optional<at::Tensor>& divisor,
                            StepOfRange step) {
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
    StepRun(part, {begin, end}, divisor, step);
    stepped += static_cast<int64_t>(end - begin);
    begin = end;
  }
  return stepped;
}

// Of the run's elements those that are stepped here.
void Optimizer::StepRun(Part& part, Run run,
                        const std::optional<at::Tensor>& divisor,
                        StepOfRange step) {
  const std::vector<FlatSlot>& slots = part.buffer->slots();
  // Whole slots, padding included: kernels then see whole vectors, and a
  // value's bits do not depend on the run that it is part of.
  const int64_t begin = std::max(slots[run.begin].offset, part.span.begin);
  const int64_t length =
      std::min(slots[run.end - 1].end, part.span.end) - begin;
  const int64_t steps = part.steps[slots[run.begin].id];
  if (length > 0) {
    Range range{part.buffer->values().narrow(0, begin, length),
                part.buffer->grads().narrow(0, begin, length),
                {},
                steps,
                divisor};
    for (const at::Tensor& state : part.state) {
      range.state.push_back(state.narrow(0, begin - part.span.begin, length));
    }
    step(range);
  }
  CountRun(part, run);
}

void Optimizer::CountRun(Part& part, Run run) {
  const std::vector<FlatSlot>& slots = part.buffer->slots();
  for (size_t i = run.begin; i < run.end; ++i) {
    part.buffer->CountWrite(i);
    int64_t& steps = part.steps[slots[i].id];
    steps = NextSteps(steps);
  }
}

}  // namespace tandem
