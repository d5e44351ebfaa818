// Stochastic gradient descent.

#ifndef TANDEM_PARALLEL_OPTIM_SGD_H_
#define TANDEM_PARALLEL_OPTIM_SGD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/optimizer_share.h"

namespace tandem {

// torch.optim.SGD as fused steps over `buffers`, which must outlive it. State:
// momentum_buffer where momentum is not zero; a parameter's first step sets it
// to the gradient. InvalidArgument for negative or non-finite values, and for
// nesterov without momentum or with dampening.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(
    const SgdOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of = nullptr);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_SGD_H_
