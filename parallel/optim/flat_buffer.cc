#include "parallel/optim/flat_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/device/memory_category.h"
#include "core/model/gradient_place.h"
#include "core/precision/low_precision_copy.h"

namespace tandem {
namespace {

// Where a slot begins or ends, nearest to an element that one of them has, or
// that is behind the last.
int64_t NearestBoundary(const std::vector<FlatSlot>& slots, int64_t element) {
  const auto found = std::lower_bound(
      slots.begin(), slots.end(), element,
      [](const FlatSlot& slot, int64_t at) { return slot.end < at; });
  const bool begins = element - found->offset <= found->end - element;
  return begins ? found->offset : found->end;
}

// Moves the slots of each buffer of `all` from where `before` says to where
// `now` says, by way of `scratch`, which is as large.
void MoveSlots(const std::vector<at::Tensor>& all,
               const std::vector<FlatSlot>& before,
               const std::vector<FlatSlot>& now, const at::Tensor& scratch) {
  for (const at::Tensor& flat : all) {
    scratch.copy_(flat);
    for (size_t i = 0; i < now.size(); ++i) {
      const int64_t length = now[i].end - now[i].offset;
      flat.narrow(0, now[i].offset, length)
          .copy_(scratch.narrow(0, before[i].offset, length));
    }
  }
}

}  // namespace

FlatBuffer::FlatBuffer(const NamedTensors& parameters,
                       const std::vector<int64_t>& positions,
                       const Allocate& allocate, ParameterTraits traits,
                       const Allocate& allocate_values, int shares)
    : traits_(std::move(traits)) {
  CHECK(!parameters.empty());
  CHECK_EQ(parameters.size(), positions.size());
  const at::Tensor& first = parameters[0].second;
  int64_t size = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    CHECK(parameter.is_leaf() && parameter.requires_grad()) << name;
    CHECK(parameter.device() == first.device() &&
          parameter.scalar_type() == first.scalar_type())
        << name;
    const int64_t end = size + AlignedLength(parameter.numel(), first);
    slots_.push_back(
        {name, parameter, positions[i], i, size, parameter.numel(), end});
    index_of_.push_back(i);
    size = end;
  }
  size = RoundUp(size, AlignedLength(1, first) * shares);
  const at::TensorOptions options = first.options().requires_grad(false);
  {
    const MemoryCategoryScope scope(MemoryCategory::kParameters);
    values_ = FlatMemory(allocate_values ? allocate_values(size, options)
                                         : at::zeros({size}, options),
                         MemoryCategory::kParameters);
  }
  {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    grads_ = FlatMemory(
        allocate ? allocate(size, options) : at::zeros_like(values()),
        MemoryCategory::kGradients);
  }
  CHECK_EQ(values().numel(), size);
  CHECK_EQ(grads().numel(), size);
  CHECK_EQ(reinterpret_cast<uintptr_t>(values().data_ptr()) % kAlignment, 0u);
  CHECK_EQ(reinterpret_cast<uintptr_t>(grads().data_ptr()) % kAlignment, 0u);
  known_finite_.resize(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) Place(i);
  GatherGradients();
}

void FlatBuffer::Place(size_t i) {
  at::NoGradGuard no_grad;
  at::Tensor& parameter = slots_[i].parameter;
  // What overlaps itself, or has holes, cannot keep its strides.
  if (!parameter.is_non_overlapping_and_dense()) {
    parameter.set_data(parameter.detach().contiguous());
  }
  const at::Tensor value = View(values(), slots_[i]);
  value.copy_(parameter);
  parameter.set_data(value);
  if (has_gradient(i)) {
    const at::Tensor grad = View(grads(), slots_[i]);
    grad.copy_(parameter.grad());
    parameter.mutable_grad() = grad;
  }
}

at::Tensor FlatBuffer::AddState() {
  const MemoryCategoryScope scope(MemoryCategory::kOptimizer);
  state_.push_back(at::zeros_like(values()));
  return state_.back();
}

at::Tensor FlatBuffer::AddPartialState(int64_t begin, int64_t end) {
  const MemoryCategoryScope scope(MemoryCategory::kOptimizer);
  keeps_order_ = true;
  return at::zeros_like(values().narrow(0, begin, end - begin));
}

void FlatBuffer::AddKeeper(std::weak_ptr<const void> keeper, Take take) {
  keepers_.emplace_back(std::move(keeper), std::move(take));
}

absl::Status FlatBuffer::TakeState(Exchange exchange) const {
  for (const auto& [keeper, take] : keepers_) {
    const std::shared_ptr<const void> alive = keeper.lock();
    if (alive != nullptr) TANDEM_RETURN_IF_ERROR(take(exchange));
  }
  return absl::OkStatus();
}

at::Tensor FlatBuffer::View(const at::Tensor& flat,
                            const FlatSlot& slot) const {
  return flat.as_strided(slot.parameter.sizes(), slot.parameter.strides(),
                         flat.storage_offset() + slot.offset);
}

void FlatBuffer::CountWrite(size_t i) const {
  torch::autograd::impl::bump_version(slots_[i].parameter);
}

void FlatBuffer::ZeroGrad() {
  for (FlatSlot& slot : slots_) slot.parameter.mutable_grad().reset();
}

void FlatBuffer::set_has_gradient(size_t i, bool on) {
  if (on == has_gradient(i)) return;
  FlatSlot& slot = slots_[i];
  known_finite_[slot.id] = 0;
  if (on) {
    slot.parameter.mutable_grad() = View(grads(), slot);
  } else {
    slot.parameter.mutable_grad().reset();
  }
}

void FlatBuffer::Reorder(const std::vector<size_t>& order) {
  CHECK(!keeps_order_) << "state of a part of it is kept";
  CHECK_EQ(order.size(), slots_.size());
  at::NoGradGuard no_grad;
  std::vector<bool> graded;
  std::vector<FlatSlot> before;
  for (size_t i = 0; i < slots_.size(); ++i) {
    graded.push_back(has_gradient(order[i]));
    before.push_back(slots_[order[i]]);
  }
  slots_ = before;
  int64_t offset = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    FlatSlot& slot = slots_[i];
    const int64_t length = slot.end - slot.offset;
    slot.offset = offset;
    slot.end = offset += length;
    index_of_[slot.id] = i;
  }
  CHECK_EQ(offset, values().numel()) << "not a permutation";
  std::vector<at::Tensor> all = state_;
  all.push_back(values());
  if (std::find(graded.begin(), graded.end(), true) != graded.end()) {
    const MemoryCategoryScope scope(MemoryCategory::kTemporaries);
    all.push_back(grads());
    MoveSlots(all, before, slots_, at::empty_like(grads()));
  } else {
    // So it is between two steps: what lies in grads() means nothing then, and
    // its memory serves. Between slots there are zeros.
    MoveSlots(all, before, slots_, grads());
    grads().zero_();
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    FlatSlot& slot = slots_[i];
    slot.parameter.set_data(View(values(), slot));
    slot.parameter.mutable_grad().reset();
    set_has_gradient(i, graded[i]);
  }
  // What graphs have kept of a parameter, as a view, is another's now.
  CountWrite();
}

absl::Status FlatBuffer::CheckViews() const {
  TANDEM_RETURN_IF_ERROR(CheckParameters());
  for (const FlatSlot& slot : slots_) {
    const at::Tensor& grad = slot.parameter.grad();
    if (!grad.defined() || slot.LiesIn(grad, grads())) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the gradient of parameter ", slot.name,
                     " was replaced by another tensor since training began: ",
                     "change its values in place"));
  }
  return absl::OkStatus();
}

absl::Status FlatBuffer::CheckParameters() const {
  for (const FlatSlot& slot : slots_) {
    const at::Tensor& parameter = slot.parameter;
    if (slot.LiesIn(parameter, values()) &&
        parameter.scalar_type() == values().scalar_type()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter ", slot.name, " was replaced after its module was wrapped: ",
        "it is ", DescribeTensor(parameter), " on ", parameter.device().str(),
        " now, and the flat buffer that is trained is ",
        DescribeTensor(values()), " on ", values().device().str(),
        "; convert or move a module first (to(), set_data()), then wrap it, "
        "and change values in place"));
  }
  return absl::OkStatus();
}

FlatBuffers MakeFlatBuffers(const NamedTensors& parameters,
                            const FlatBufferOptions& options) {
  CHECK(options.traits.empty() || options.traits.size() == parameters.size());
  struct Part {
    c10::Device device;
    at::ScalarType dtype;
    ParameterTraits traits;
    NamedTensors parameters;
    std::vector<int64_t> positions;
  };
  std::vector<Part> parts;
  std::set<c10::TensorImpl*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].second;
    const std::optional<ParameterTraits> traits =
        options.traits.empty() ? ParameterTraits() : options.traits[i];
    if (!tensor.requires_grad() || !traits.has_value()) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& each) {
      return each.device == tensor.device() &&
             each.dtype == tensor.scalar_type() && each.traits == *traits;
    });
    if (part == parts.end()) {
      part = parts.insert(
          part, {tensor.device(), tensor.scalar_type(), *traits, {}, {}});
    }
    part->parameters.push_back(parameters[i]);
    part->positions.push_back(static_cast<int64_t>(i));
  }
  FlatBuffers buffers;
  for (Part& part : parts) {
    std::reverse(part.parameters.begin(), part.parameters.end());
    std::reverse(part.positions.begin(), part.positions.end());
    buffers.push_back(std::make_unique<FlatBuffer>(
        part.parameters, part.positions, options.allocate, part.traits,
        options.allocate_values, options.shares));
  }
  return buffers;
}

// What hooks hold: whose they are, while it lives.
struct FlatBuffer::Link {
  FlatBuffer* buffer;
};

// Hangs on a parameter's gradient accumulator.
class FlatBuffer::Gather : public GradientPlace {
 public:
  Gather(std::shared_ptr<Link> link, size_t id)
      : link_(std::move(link)), id_(id) {}

 protected:
  at::Tensor Find() override {
    FlatBuffer* const buffer = link_->buffer;
    if (buffer == nullptr) return at::Tensor();
    const FlatSlot& slot = buffer->slots_[buffer->index_of_[id_]];
    // What was replaced, CheckParameters() is to find.
    if (slot.parameter.grad().defined() ||
        !slot.LiesIn(slot.parameter, buffer->values()) ||
        slot.parameter.scalar_type() != buffer->values().scalar_type()) {
      return at::Tensor();
    }
    return buffer->GradientPlaceOf(slot);
  }
  void Begin(IsFinite is_finite) override {
    FlatBuffer& buffer = *link_->buffer;
    buffer.set_has_gradient(buffer.index_of_[id_], true);
    buffer.known_finite_[id_] =
        buffer.asks_whether_finite_ && is_finite() ? 1 : 0;
  }
  void Complete(bool has_added) override {
    if (link_->buffer != nullptr) link_->buffer->Gathered(id_, has_added);
  }

 private:
  std::shared_ptr<Link> link_;
  size_t id_;
};

FlatBuffer::~FlatBuffer() {
  link_->buffer = nullptr;
  for (const FlatSlot& slot : slots_) DropLowPrecisionCopy(slot.parameter);
}

// Where gradients are sharded, their memory comes with the first of them.
at::Tensor FlatBuffer::GradientPlaceOf(const FlatSlot& slot) {
  if (!grads_.has_whole()) {
    grads_.TakeWhole();
    for (const FlatSlot& each : slots_) {
      const int64_t end = each.offset + each.numel;
      grads().narrow(0, end, each.end - end).zero_();
    }
  }
  return View(grads(), slot);
}

void FlatBuffer::GatherGradients() {
  link_ = std::make_shared<Link>(Link{this});
  for (const FlatSlot& slot : slots_) {
    auto accumulator = torch::autograd::impl::grad_accumulator(slot.parameter);
    accumulator->add_post_hook(std::make_unique<Gather>(link_, slot.id));
    accumulators_.push_back(std::move(accumulator));
  }
}

void FlatBuffer::Gathered(size_t id, bool has_added) {
  at::NoGradGuard no_grad;
  if (has_added) known_finite_[id] = 0;
  FlatSlot& slot = slots_[index_of_[id]];
  const at::Tensor& grad = slot.parameter.grad();
  if (!slot.LiesIn(grad, grads())) {
    const at::Tensor place = GradientPlaceOf(slot);
    // Autograd's own tensor: nobody else has it, as a rule.
    if (grad.is_sparse()) {
      place.zero_().add_(grad);
    } else {
      place.copy_(grad);
    }
    slot.parameter.mutable_grad() = place;
  }
  if (on_gradient_) on_gradient_(slot);
}

ElementSpan ShareSpan(const FlatBuffer& buffer, const OptimizerShare& share) {
  const at::Tensor& values = buffer.values();
  const int64_t unit = AlignedLength(1, values);
  const int64_t units = values.numel() / unit;
  const auto begin_of = [&](int64_t rank) {
    const int64_t even = units * rank / share.ranks * unit;
    return buffer.shares_whole_parameters()
               ? NearestBoundary(buffer.slots(), even)
               : even;
  };
  return {begin_of(share.rank), begin_of(share.rank + 1)};
}

bool SharesAreEqual(const FlatBuffer& buffer, int ranks) {
  const int64_t length = ShareSpan(buffer, {0, ranks}).length();
  for (int rank = 1; rank < ranks; ++rank) {
    if (ShareSpan(buffer, {rank, ranks}).length() != length) return false;
  }
  return true;
}

}  // namespace tandem
