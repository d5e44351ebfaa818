// Replication in autograd's graph: replicas' tensors as functions of the
// module's, so that backward brings their gradients together there.
// (torch.nn.parallel.replicate, without making modules anew.)

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_REPLICATE_BACKWARD_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_REPLICATE_BACKWARD_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace tandem {

// Makes replicas[r][i] outputs of a node of the graph whose inputs are
// `masters`, with a gradient each: whoever computes with a replica's tensor
// from now on has its gradient flow to masters[i], on whose device, devices[0],
// those of all replicas are summed (gradient_tree.h). The tensors stay the same
// objects, so that a module's members go on being what they were; what was
// computed with them before keeps its own way. Undefined ones are left out; a
// gradient that no replica has is undefined.
//
// Parameters are grouped, about 4 MiB in a node: backward sums those that it
// has the gradients of while it goes on with others.
//
// `masters` require a gradient, or are themselves computed; those of the
// replicas do not. Gradients and sums use the calling thread's current streams
// of the devices.
void RouteGradients(const std::vector<at::Tensor>& masters,
                    const std::vector<std::vector<at::Tensor>>& replicas,
                    const std::vector<c10::Device>& devices);

// Leaves a tensor without a way for gradients, as a buffer has none.
void EndRoute(const at::Tensor& replica);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_REPLICATE_BACKWARD_H_
