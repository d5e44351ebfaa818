#include "parallel/optim/stepped_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/precision/low_precision_copy.h"

namespace tandem {
namespace {

constexpr double kMostSteps = int64_t{1} << 53;  // a double counts no further

bool EndsInStep(absl::string_view name) {
  return absl::EndsWith(name, absl::StrCat(".", kStepState));
}

absl::StatusOr<int64_t> ReadSteps(const StoredTensor& stored) {
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor, stored.read());
  const double steps = tensor.item<float>();
  if (steps >= 0 && steps <= kMostSteps && std::floor(steps) == steps) {
    return static_cast<int64_t>(steps);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer state ", stored.info.name, " is ", steps,
      ", expected a number of steps: whole, from 0 to ", kMostSteps));
}

std::vector<size_t> IdsWithGradient(const FlatBuffer& buffer) {
  std::vector<size_t> ids;
  const std::vector<FlatSlot>& slots = buffer.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (buffer.has_gradient(i)) ids.push_back(slots[i].id);
  }
  return ids;
}

// The part of `buffer` that is stepped here, which has no part of a matrix.
ElementSpan SteppedSpan(FlatBuffer& buffer, const OptimizerTraits& traits,
                        const OptimizerShare& share) {
  if (traits.steps_matrices) buffer.ShareWholeParameters();
  return ShareSpan(buffer, share);
}

// Gives a range that is one slot's the sizes of its parameter.
void TakeSizes(const at::Tensor& parameter, OptimizerRange& range) {
  const auto sized = [&](const at::Tensor& flat) {
    return flat.as_strided(parameter.sizes(), parameter.strides());
  };
  range.values = sized(range.values);
  range.grads = sized(range.grads);
  for (at::Tensor& state : range.state) state = sized(state);
}

// A parameter's copy in a lower precision, to be written with it.
struct CopyToWrite {
  at::Tensor parameter;
  int64_t offset;  // in the buffer
  at::Tensor copy;
};

// Copies of slots [begin, end), of a buffer in the host's memory.
std::vector<CopyToWrite> CopiesToWrite(const FlatBuffer& buffer, size_t begin,
                                       size_t end) {
  std::vector<CopyToWrite> copies;
  if (!buffer.values().is_cpu()) return copies;
  for (size_t i = begin; i < end; ++i) {
    const FlatSlot& slot = buffer.slots()[i];
    at::Tensor copy = LowPrecisionCopyToWrite(slot.parameter);
    if (!copy.defined()) continue;
    copies.push_back({slot.parameter, slot.offset, std::move(copy)});
  }
  return copies;
}

OptimizerRange Part(const OptimizerRange& range, int64_t begin,
                    int64_t length) {
  OptimizerRange part = range;
  part.values = range.values.narrow(0, begin, length);
  part.grads = range.grads.narrow(0, begin, length);
  for (at::Tensor& state : part.state) state = state.narrow(0, begin, length);
  return part;
}

// So many elements at a time, that their values are still in the caches when
// they are copied; a multiple of every vector's length.
constexpr int64_t kElementsToCopy = int64_t{1} << 18;

// A step of the range, which begins at `from`.
void StepWithCopies(const OptimizerRule& rule, const OptimizerRange& range,
                    int64_t from, const std::vector<CopyToWrite>& copies,
                    double learning_rate) {
  if (copies.empty()) return rule.Step(range, learning_rate);
  const int64_t length = range.values.numel();
  for (int64_t begin = 0; begin < length; begin += kElementsToCopy) {
    const int64_t end = std::min(begin + kElementsToCopy, length);
    rule.Step(Part(range, begin, end - begin), learning_rate);
    for (const CopyToWrite& each : copies) {
      const int64_t first = std::max(each.offset, from + begin);
      const int64_t last =
          std::min(each.offset + each.copy.numel(), from + end);
      if (first >= last) continue;
      each.copy.narrow(0, first - each.offset, last - first)
          .copy_(range.values.narrow(0, first - from, last - first));
    }
  }
}

}  // namespace

SteppedBuffer::SteppedBuffer(FlatBuffer& buffer, const OptimizerRule& rule,
                             const OptimizerShare& share)
    : buffer_(buffer),
      rule_(rule),
      is_shared_(!share.is_whole()),
      is_first_(share.rank == 0),
      span_(SteppedSpan(buffer, rule.traits(), share)),
      steps_(buffer.slots().size()),
      lives_(std::make_shared<const bool>(true)) {
  for (size_t i = 0; i < rule_.traits().buffers.size(); ++i) {
    state_.push_back(is_shared_
                         ? buffer_.AddPartialState(span_.begin, span_.end)
                         : buffer_.AddState());
  }
  buffer_.AddKeeper(lives_, [this](FlatBuffer::Exchange exchange) {
    return TakeState(exchange);
  });
}

int64_t SteppedBuffer::Step(double learning_rate,
                            const std::optional<at::Tensor>& divisor,
                            const at::Tensor& found_inf) {
  if (found_inf.defined()) BeginUnsettled();
  const std::vector<FlatSlot>& slots = buffer_.slots();
  const OptimizerTraits& traits = rule_.traits();
  int64_t stepped = 0;
  for (size_t end, begin = 0; begin < slots.size();
       begin = std::max(end, begin + 1)) {
    end = EndOfRun(begin);
    if (end == begin) continue;
    // What is another rank's share is written by all-gathers.
    const std::vector<CopyToWrite> copies =
        is_shared_ || traits.steps_matrices
            ? std::vector<CopyToWrite>()
            : CopiesToWrite(buffer_, begin, end);
    // Whole slots, padding included: kernels then see whole vectors, and a
    // value's bits do not depend on the run that it is part of. Of them those
    // elements that are stepped here.
    const int64_t from = std::max(slots[begin].offset, span_.begin);
    const int64_t length = std::min(slots[end - 1].end, span_.end) - from;
    if (length > 0) {
      OptimizerRange range = Range(from, length);
      if (traits.steps_matrices) TakeSizes(slots[begin].parameter, range);
      range.steps = steps(begin);
      range.divisor = divisor;
      if (found_inf.defined()) {
        range.found_inf = found_inf;
        range.skipped = unsettled_.skipped;
      }
      StepWithCopies(rule_, range, from, copies, learning_rate);
    }
    for (size_t i = begin; i < end; ++i) {
      buffer_.CountWrite(i);
      int64_t& steps = steps_[slots[i].id];
      steps = traits.counts_steps ? steps + 1 : 1;
    }
    for (const CopyToWrite& each : copies) {
      NoteLowPrecisionCopyWritten(each.parameter);
    }
    stepped += static_cast<int64_t>(end - begin);
  }
  if (found_inf.defined()) unsettled_.skipped.add_(found_inf);
  return stepped;
}

size_t SteppedBuffer::EndOfRun(size_t begin) const {
  const size_t most = rule_.traits().steps_matrices ? begin + 1 : size();
  size_t end = begin;
  while (end < most && buffer_.has_gradient(end) &&
         steps(end) == steps(begin)) {
    ++end;
  }
  return end;
}

OptimizerRange SteppedBuffer::Range(int64_t begin, int64_t length) const {
  OptimizerRange range{buffer_.value_memory().Part(begin, begin + length),
                       buffer_.grad_memory().Part(begin, begin + length),
                       {},
                       0,
                       std::nullopt};
  for (const at::Tensor& state : state_) {
    range.state.push_back(state.narrow(0, begin - span_.begin, length));
  }
  return range;
}

// Steps of which it is not known whether they were done are of the same
// parameters, and of none that may have had its first among them where that one
// is another than those that follow.
void SteppedBuffer::BeginUnsettled() {
  std::vector<size_t> ids = IdsWithGradient(buffer_);
  if (unsettled_.count > 0) {
    const bool first_counts =
        !rule_.traits().counts_steps &&
        std::any_of(ids.begin(), ids.end(),
                    [&](size_t id) { return unsettled_.before[id] == 0; });
    if (first_counts || ids != unsettled_.ids) Settle();
  }
  if (unsettled_.count++ > 0) return;
  unsettled_.ids = std::move(ids);
  unsettled_.before = steps_;
  if (unsettled_.skipped.defined()) return;
  unsettled_.skipped =
      at::zeros({}, buffer_.values().options().dtype(at::kFloat));
}

void SteppedBuffer::Settle() {
  if (unsettled_.count == 0) return;
  const at::NoGradGuard no_grad;
  const int64_t done =
      unsettled_.count - static_cast<int64_t>(unsettled_.skipped.item<float>());
  for (const size_t id : unsettled_.ids) {
    const int64_t before = unsettled_.before[id];
    steps_[id] = done == 0                     ? before
                 : rule_.traits().counts_steps ? before + done
                                               : 1;
  }
  unsettled_.skipped.zero_();
  unsettled_.count = 0;
}

NamedTensors SteppedBuffer::SlotState(
    size_t slot, const std::vector<at::Tensor>& states) const {
  const FlatSlot& place = buffer_.slots()[slot];
  NamedTensors state;
  for (size_t i = 0; i < states.size(); ++i) {
    state.emplace_back(absl::StrCat(place.name, ".", rule_.traits().buffers[i]),
                       buffer_.View(states[i], place));
  }
  if (rule_.traits().counts_steps) {
    state.emplace_back(absl::StrCat(place.name, ".", kStepState),
                       at::scalar_tensor(steps(slot)));
  }
  return state;
}

NamedTensors SteppedBuffer::SlotForm(size_t slot) const {
  const std::vector<at::Tensor> states(rule_.traits().buffers.size(),
                                       buffer_.values());
  return SlotState(slot, states);
}

// The number of steps is of the rank that has the first element; a parameter
// without elements is the first rank's.
void SteppedBuffer::AddShare(size_t slot, StatePart* shared) const {
  const FlatSlot& place = buffer_.slots()[slot];
  if (!HoldsPart(place, Share({}))) return;
  for (size_t i = 0; i < state_.size(); ++i) {
    AddSlice(place, Share(state_[i]),
             absl::StrCat(place.name, ".", rule_.traits().buffers[i]), shared);
  }
  const bool has_first = place.numel == 0 || place.offset >= span_.begin;
  if (rule_.traits().counts_steps && has_first) {
    shared->tensors.emplace_back(absl::StrCat(place.name, ".", kStepState),
                                 at::scalar_tensor(steps(slot)));
  }
}

// What is shared stays: of that each rank has its own part.
absl::Status SteppedBuffer::TakeState(FlatBuffer::Exchange exchange) {
  if (is_shared_) return absl::OkStatus();
  Settle();
  for (const at::Tensor& state : state_) {
    TANDEM_RETURN_IF_ERROR(exchange(state));
  }
  const at::Tensor steps = at::tensor(steps_, at::kLong);
  TANDEM_RETURN_IF_ERROR(exchange(steps));
  const auto* const taken = steps.const_data_ptr<int64_t>();
  steps_.assign(taken, taken + steps.numel());
  return absl::OkStatus();
}

absl::Status SteppedBuffer::CheckSlot(const NamedTensors& wanted,
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
    if (rule_.traits().counts_steps && EndsInStep(name)) {
      TANDEM_RETURN_IF_ERROR(ReadSteps(*source).status());
    }
  }
  return absl::OkStatus();
}

absl::Status SteppedBuffer::Load(const StoredByName& given) {
  for (at::Tensor& tensor : state_) tensor.zero_();
  for (size_t slot = 0; slot < size(); ++slot) {
    TANDEM_RETURN_IF_ERROR(LoadSlot(slot, given));
  }
  return absl::OkStatus();
}

absl::Status SteppedBuffer::LoadSlot(size_t slot, const StoredByName& given) {
  int64_t& steps = steps_[buffer_.slots()[slot].id];
  steps = 0;
  const NamedTensors wanted = SlotForm(slot);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto source = given.find(wanted[i].first);
    if (source == given.end()) return absl::OkStatus();
    if (i == state_.size()) {
      TANDEM_ASSIGN_OR_RETURN(steps, ReadSteps(*source->second));
      continue;
    }
    TANDEM_RETURN_IF_ERROR(LoadValues(slot, *source->second, state_[i]));
    steps = 1;
  }
  return absl::OkStatus();
}

// Puts those of a parameter's values where they are kept that are kept here.
absl::Status SteppedBuffer::LoadValues(size_t slot, const StoredTensor& values,
                                       const at::Tensor& kept) const {
  const FlatSlot& place = buffer_.slots()[slot];
  if (!is_shared_) return ReadInto(values, buffer_.View(kept, place));
  return ReadSlice(values, place, Share(kept));
}

}  // namespace tandem
