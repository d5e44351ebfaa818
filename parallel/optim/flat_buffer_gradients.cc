// How gradients come to their places.

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "core/model/gradient_place.h"
#include "core/precision/low_precision_copy.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

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
    const FlatBuffer* buffer = link_->buffer;
    if (buffer == nullptr) return at::Tensor();
    const FlatSlot& slot = buffer->slots_[buffer->index_of_[id_]];
    // What was replaced, CheckParameters() is to find.
    if (slot.parameter.grad().defined() ||
        !slot.LiesIn(slot.parameter, buffer->values_) ||
        slot.parameter.scalar_type() != buffer->values_.scalar_type()) {
      return at::Tensor();
    }
    return buffer->View(buffer->grads_, slot);
  }
  void Begin() override {
    link_->buffer->set_has_gradient(link_->buffer->index_of_[id_], true);
  }
  void Complete() override {
    if (link_->buffer != nullptr) link_->buffer->Gathered(id_);
  }

 private:
  std::shared_ptr<Link> link_;
  size_t id_;
};

FlatBuffer::~FlatBuffer() {
  link_->buffer = nullptr;
  for (const FlatSlot& slot : slots_) DropLowPrecisionCopy(slot.parameter);
}

void FlatBuffer::GatherGradients() {
  link_ = std::make_shared<Link>(Link{this});
  for (const FlatSlot& slot : slots_) {
    auto accumulator = torch::autograd::impl::grad_accumulator(slot.parameter);
    accumulator->add_post_hook(std::make_unique<Gather>(link_, slot.id));
    accumulators_.push_back(std::move(accumulator));
  }
}

void FlatBuffer::Gathered(size_t id) {
  at::NoGradGuard no_grad;
  FlatSlot& slot = slots_[index_of_[id]];
  const at::Tensor& grad = slot.parameter.grad();
  if (!slot.LiesIn(grad, grads_)) {
    const at::Tensor place = View(grads_, slot);
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

}  // namespace tandem
