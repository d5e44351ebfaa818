#include "core/base/viewed_leaf.h"

namespace tandem {

at::Tensor ViewedLeaf(const at::Tensor& tensor) {
  if (!tensor.is_view()) return tensor;
  const at::Tensor base(tensor._base());
  const bool shows_all = base.is_leaf() && base.layout() == at::kStrided &&
                         base.scalar_type() == tensor.scalar_type() &&
                         base.device() == tensor.device() &&
                         base.sizes() == tensor.sizes() &&
                         base.strides() == tensor.strides() &&
                         base.storage_offset() == tensor.storage_offset();
  return shows_all ? base : tensor;
}

}  // namespace tandem
