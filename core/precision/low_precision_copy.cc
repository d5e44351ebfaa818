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
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/tensors.h"
#include "core/device/memory_category.h"

namespace tandem {
namespace {

using WeakTensor =
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// One parameter's. Threads that ask for different ones do not wait for each
// other while they are written.
class Copy {
 public:
  explicit Copy(const at::Tensor& parameter)
      : of_(parameter.getIntrusivePtr()) {}

  bool is_orphan() const { return of_.expired(); }

  at::Tensor In(at::ScalarType dtype, at::MemoryFormat format,
                const at::Tensor& parameter) {
    absl::MutexLock lock(&mutex_);
    if (is_given_ && Fits(dtype, format, parameter)) return values_;
    if (!Fits(dtype, format, parameter)) {
      const MemoryCategoryScope category(MemoryCategory::kParameters);
      values_ =
          at::empty_like(parameter, parameter.options().dtype(dtype), format);
      data_ = nullptr;
    }
    if (data_ != parameter.const_data_ptr() ||
        version_ != parameter._version()) {
      values_.copy_(parameter);
      data_ = parameter.const_data_ptr();
      version_ = parameter._version();
    }
    return values_;
  }

  at::Tensor values() {
    absl::MutexLock lock(&mutex_);
    return values_;
  }

  void Give(const at::Tensor& values) {
    absl::MutexLock lock(&mutex_);
    values_ = values;
    is_given_ = true;
  }

  void NoteWritten(const at::Tensor& parameter) {
    absl::MutexLock lock(&mutex_);
    data_ = parameter.const_data_ptr();
    version_ = parameter._version();
  }

 private:
  bool Fits(at::ScalarType dtype, at::MemoryFormat format,
            const at::Tensor& parameter) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return values_.defined() && values_.scalar_type() == dtype &&
           values_.device() == parameter.device() &&
           values_.sizes() == parameter.sizes() &&
           (format == at::MemoryFormat::Preserve
                ? values_.strides() == parameter.strides()
                : values_.is_contiguous(format));
  }

  // Keeps the address, which is the key, from being another's.
  const WeakTensor of_;
  absl::Mutex mutex_;
  // The parameter's, when the copy was written.
  uint32_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  const void* data_ ABSL_GUARDED_BY(mutex_) = nullptr;
  at::Tensor values_ ABSL_GUARDED_BY(mutex_);
  bool is_given_ ABSL_GUARDED_BY(mutex_) = false;
};

bool IsKept(const at::Tensor& parameter) {
  return parameter.is_leaf() && parameter.requires_grad() &&
         !parameter.is_inference() && parameter.layout() == at::kStrided;
}

// The parameter whose accumulator the tensor has: what a node of a checkpointed
// function unpacks is another tensor each time, of the same values.
at::Tensor LeafParameter(const at::Tensor& tensor) {
  const auto accumulator =
      torch::autograd::impl::try_get_grad_accumulator(tensor);
  const auto* const node =
      dynamic_cast<const torch::autograd::AccumulateGrad*>(accumulator.get());
  return node == nullptr ? tensor : node->variable;
}

// Copies of one process's parameters.
class Copies {
 public:
  std::shared_ptr<Copy> Of(const at::Tensor& parameter) {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Copy>& copy = copies_[parameter.unsafeGetTensorImpl()];
    if (copy != nullptr) return copy;
    copy = std::make_shared<Copy>(parameter);
    const std::shared_ptr<Copy> made = copy;
    DropOrphans();
    return made;
  }

  // Null: there is none.
  std::shared_ptr<Copy> Find(const at::Tensor& parameter) {
    absl::MutexLock lock(&mutex_);
    const auto found = copies_.find(parameter.unsafeGetTensorImpl());
    return found == copies_.end() ? nullptr : found->second;
  }

  void Drop(const at::Tensor& parameter) {
    absl::MutexLock lock(&mutex_);
    copies_.erase(parameter.unsafeGetTensorImpl());
  }

 private:
  // Looks at all of them each time that there are twice as many.
  void DropOrphans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (copies_.size() < look_at_) return;
    for (auto it = copies_.begin(); it != copies_.end();) {
      if (it->second->is_orphan()) {
        copies_.erase(it++);
      } else {
        ++it;
      }
    }
    look_at_ = 2 * copies_.size() + kFewCopies;
  }

  static constexpr size_t kFewCopies = 16;

  absl::Mutex mutex_;
  absl::flat_hash_map<const c10::TensorImpl*, std::shared_ptr<Copy>> copies_
      ABSL_GUARDED_BY(mutex_);
  size_t look_at_ ABSL_GUARDED_BY(mutex_) = kFewCopies;
};

Copies& AllCopies() {
  static auto* const copies = new Copies;
  return *copies;
}

}  // namespace

at::Tensor LowPrecisionCopy(const at::Tensor& parameter, at::ScalarType dtype,
                            at::MemoryFormat format) {
  if (parameter.scalar_type() == dtype) return parameter;
  const auto converted = [&] {
    return parameter.to(dtype, /*non_blocking=*/false, /*copy=*/false, format);
  };
  if (at::GradMode::is_enabled()) return converted();
  const at::Tensor leaf = ViewedLeaf(parameter);
  if (!IsKept(leaf)) return converted();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor owner = LeafParameter(leaf);
  return AllCopies().Of(owner)->In(dtype, format, owner);
}

at::Tensor KeptLowPrecisionCopy(const at::Tensor& parameter) {
  const std::shared_ptr<Copy> copy = AllCopies().Find(parameter);
  return copy == nullptr ? at::Tensor() : copy->values();
}

at::Tensor LowPrecisionCopyToWrite(const at::Tensor& parameter) {
  const at::Tensor copy = KeptLowPrecisionCopy(parameter);
  if (!copy.defined() || copy.strides() != parameter.strides() ||
      copy.sizes() != parameter.sizes() ||
      !copy.is_non_overlapping_and_dense()) {
    return {};
  }
  return copy.as_strided({copy.numel()}, {1});
}

void NoteLowPrecisionCopyWritten(const at::Tensor& parameter) {
  const std::shared_ptr<Copy> copy = AllCopies().Find(parameter);
  if (copy != nullptr) copy->NoteWritten(parameter);
}

void GiveLowPrecisionCopy(const at::Tensor& parameter, const at::Tensor& copy) {
  AllCopies().Of(parameter)->Give(copy);
}

void DropLowPrecisionCopy(const at::Tensor& parameter) {
  AllCopies().Drop(parameter);
}

}  // namespace tandem
