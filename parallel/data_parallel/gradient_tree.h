// Tree reduction of gradients: the sums over devices, on the first of them.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_GRADIENT_TREE_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_GRADIENT_TREE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace tandem {

// Of tensor i of every device, on devices[0]. `tensors` [device][i] lie on
// their device; undefined ones count as zero, and a sum of undefined ones alone
// is undefined. The order is that of a binary tree, always the same one:
// ((0 + 1) + (2 + 3)) + ((4 + 5) + 6). Each level's copies and sums of
// different pairs of devices are independent. (PyTorch sums one after the
// other, or by NCCL.)
//
// Small tensors of one dtype go from device to device side by side, in one
// copy. Differentiable where gradients are on (backward with create_graph).
// Sums may share memory with `tensors`, which keep their values. Throws
// LibTorch's errors.
std::vector<at::Tensor> SumOverDevices(
    std::vector<std::vector<at::Tensor>> tensors,
    const std::vector<c10::Device>& devices);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_GRADIENT_TREE_H_
