#include "parallel/optim/flat_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/device/memory_category.h"
#include "parallel/optim/aligned_length.h"

namespace tandem {
namespace {

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
                       const Allocate& allocate_values)
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
  const at::TensorOptions options = first.options().requires_grad(false);
  {
    const MemoryCategoryScope scope(MemoryCategory::kParameters);
    values_ = allocate_values ? allocate_values(size, options)
                              : at::zeros({size}, options);
  }
  {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    grads_ = allocate ? allocate(size, options) : at::zeros_like(values_);
  }
  CHECK_EQ(values_.numel(), size);
  CHECK_EQ(grads_.numel(), size);
  CHECK_EQ(reinterpret_cast<uintptr_t>(values_.data_ptr()) % kAlignment, 0u);
  CHECK_EQ(reinterpret_cast<uintptr_t>(grads_.data_ptr()) % kAlignment, 0u);
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
  const at::Tensor value = View(values_, slots_[i]);
  value.copy_(parameter);
  parameter.set_data(value);
  if (has_gradient(i)) {
    const at::Tensor grad = View(grads_, slots_[i]);
    grad.copy_(parameter.grad());
    parameter.mutable_grad() = grad;
  }
}

at::Tensor FlatBuffer::AddState() {
  const MemoryCategoryScope scope(MemoryCategory::kOptimizer);
  state_.push_back(at::zeros_like(values_));
  return state_.back();
}

at::Tensor FlatBuffer::AddStateOf(int64_t begin, int64_t end) {
  const MemoryCategoryScope scope(MemoryCategory::kOptimizer);
  keeps_order_ = true;
  return at::zeros_like(values_.narrow(0, begin, end - begin));
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
  FlatSlot& slot = slots_[i];
  if (!on) {
    slot.parameter.mutable_grad().reset();
  } else if (!has_gradient(i)) {
    slot.parameter.mutable_grad() = View(grads_, slot);
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
  CHECK_EQ(offset, values_.numel()) << "not a permutation";
  std::vector<at::Tensor> all = state_;
  all.push_back(values_);
  if (std::find(graded.begin(), graded.end(), true) != graded.end()) {
    const MemoryCategoryScope scope(MemoryCategory::kTemporaries);
    all.push_back(grads_);
    MoveSlots(all, before, slots_, at::empty_like(grads_));
  } else {
    // So it is between two steps: what lies in grads_ means nothing then, and
    // its memory serves. Between slots there are zeros.
    MoveSlots(all, before, slots_, grads_);
    grads_.zero_();
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    FlatSlot& slot = slots_[i];
    slot.parameter.set_data(View(values_, slot));
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
    if (!grad.defined() || slot.LiesIn(grad, grads_)) continue;
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
    if (slot.LiesIn(parameter, values_) &&
        parameter.scalar_type() == values_.scalar_type()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter ", slot.name, " was replaced after its module was wrapped: ",
        "it is ", DescribeTensor(parameter), " on ", parameter.device().str(),
        " now, and the flat buffer that is trained is ",
        DescribeTensor(values_), " on ", values_.device().str(),
        "; convert or move a module first (to(), set_data()), then wrap it, "
        "and change values in place"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
