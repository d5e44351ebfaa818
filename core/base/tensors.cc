#include "core/base/tensors.h"

#include <ATen/ops/scalar_tensor.h>

#include <sstream>

namespace tandem {

std::string DescribeTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  std::ostringstream out;
  out << tensor.scalar_type() << " " << tensor.sizes();
  return out.str();
}

void MultiplyInPlace(const at::Tensor& tensor, double factor) {
  tensor.mul_(at::scalar_tensor(factor, at::kDouble));
}

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
