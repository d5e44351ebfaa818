// Replication in autograd's graph: replicas' tensors as functions of the
// module's, so that backward brings their gradients together there.
// (torch.nn.parallel.replicate, without making modules anew.)

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_REPLICATE_BACKWARD_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_REPLICATE_BACKWARD_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace tandem {

// Makes replicas[r] a function of `master`: whoever computes with it from now
// on has its gradient flow to the master, on whose device, devices[0], those of
// all replicas are summed as soon as backward has them, while it goes on with
// others. The tensors stay the same objects, so that a module's members go on
// being what they were; what was computed with them before keeps its own way.
// Undefined ones are left out; a gradient that no replica has is undefined.
//
// `master` requires a gradient, or is itself computed; those of the replicas do
// not. Gradients and sums use the calling thread's current streams of the
// devices.
void RouteGradient(const at::Tensor& master,
                   const std::vector<at::Tensor>& replicas,
                   const std::vector<c10::Device>& devices);

// Leaves a tensor without a way for gradients, as a buffer has none.
void EndRoute(const at::Tensor& replica);

// The sum of gradients[i], which lie on devices[i], on devices[0]; undefined
// ones count as zero, and the sum of undefined ones alone is undefined. The
// order is that of a binary tree, always the same one:
// ((0 + 1) + (2 + 3)) + ((4 + 5) + 6). Each level's copies and sums of
// different pairs of devices are independent. (PyTorch sums one after the
// other, or by NCCL.)
//
// Differentiable (backward with create_graph). The sum may share memory with
// `gradients`, which keep their values. Throws LibTorch's errors.
at::Tensor SumOverDevices(std::vector<at::Tensor> gradients,
                          const std::vector<c10::Device>& devices);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_REPLICATE_BACKWARD_H_
