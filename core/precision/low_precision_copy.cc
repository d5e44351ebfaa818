#include "core/precision/low_precision_copy.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/device/memory_category.h"

namespace tandem {
namespace {

using WeakTensor =
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct Copy {
  explicit Copy(const at::Tensor& parameter)
      : of(parameter.getIntrusivePtr()) {}

  // Keeps the address, which is the key, from being another's.
  WeakTensor of;
  uint32_t version = 0;  // the parameter's, when the copy was written
  const void* data = nullptr;
  at::Tensor values;
};

bool IsKept(const at::Tensor& parameter) {
  return parameter.is_leaf() && parameter.requires_grad() &&
         !parameter.is_inference() && parameter.layout() == at::kStrided;
}

// Whose accumulator it has: what a node of a checkpointed function unpacks is
// another tensor each time, of the same values.
at::Tensor ParameterOf(const at::Tensor& tensor) {
  const auto accumulator =
      torch::autograd::impl::try_get_grad_accumulator(tensor);
  const auto* const its =
      dynamic_cast<const torch::autograd::AccumulateGrad*>(accumulator.get());
  return its == nullptr ? tensor : its->variable;
}

// Copies of one process's parameters.
class Copies {
 public:
  at::Tensor Of(const at::Tensor& parameter, at::ScalarType dtype) {
    absl::MutexLock lock(&mutex_);
    const auto [found, is_new] =
        copies_.try_emplace(parameter.unsafeGetTensorImpl(), parameter);
    Copy& copy = found->second;
    if (!Fits(copy, parameter, dtype)) {
      const MemoryCategoryScope category(MemoryCategory::kParameters);
      copy.values = at::empty_like(parameter, parameter.options().dtype(dtype));
      copy.data = nullptr;
    }
    if (copy.data != parameter.const_data_ptr() ||
        copy.version != parameter._version()) {
      copy.values.copy_(parameter);
      copy.data = parameter.const_data_ptr();
      copy.version = parameter._version();
    }
    const at::Tensor values = copy.values;
    if (is_new) DropOrphans();
    return values;
  }

 private:
  static bool Fits(const Copy& copy, const at::Tensor& parameter,
                   at::ScalarType dtype) {
    return copy.values.defined() && copy.values.scalar_type() == dtype &&
           copy.values.device() == parameter.device() &&
           copy.values.sizes() == parameter.sizes() &&
           copy.values.strides() == parameter.strides();
  }

  // Looks at all of them each time that there are twice as many.
  void DropOrphans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (copies_.size() < look_at_) return;
    for (auto it = copies_.begin(); it != copies_.end();) {
      if (it->second.of.expired()) {
        copies_.erase(it++);
      } else {
        ++it;
      }
    }
    look_at_ = 2 * copies_.size() + kFewCopies;
  }

  static constexpr size_t kFewCopies = 16;

  absl::Mutex mutex_;
  absl::flat_hash_map<const c10::TensorImpl*, Copy> copies_
      ABSL_GUARDED_BY(mutex_);
  size_t look_at_ ABSL_GUARDED_BY(mutex_) = kFewCopies;
};

}  // namespace

at::Tensor LowPrecisionCopy(const at::Tensor& parameter, at::ScalarType dtype) {
  if (parameter.scalar_type() == dtype) return parameter;
  if (at::GradMode::is_enabled() || !IsKept(parameter)) {
    return parameter.to(dtype);
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  static auto* const copies = new Copies;
  return copies->Of(ParameterOf(parameter), dtype);
}

}  // namespace tandem
