// Viewed leaf: the parameter behind a view of all of it.

#ifndef TANDEM_CORE_BASE_VIEWED_LEAF_H_
#define TANDEM_CORE_BASE_VIEWED_LEAF_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// The leaf of which `tensor` is a view that shows all of it as it lies there
// (view_as); `tensor` itself where it is another view, or none.
at::Tensor ViewedLeaf(const at::Tensor& tensor);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_VIEWED_LEAF_H_
