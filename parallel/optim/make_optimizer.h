// Optimizer factory: one of the optimizers, from whichever options are given.

#ifndef TANDEM_PARALLEL_OPTIM_MAKE_OPTIMIZER_H_
#define TANDEM_PARALLEL_OPTIM_MAKE_OPTIMIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/optimizer_share.h"

namespace tandem {

// MakeSgd, MakeAdam or MakeAdamW. What `buffers` lists must outlive the
// optimizer: all of a model's flat buffers, or those of one parameter group
// (Replica::flat_buffers_of).
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of = nullptr);

// How many numbers of state it keeps for each parameter: 0 or 1 of SGD, 2 or 3
// of Adam and AdamW.
int StateNumbers(const OptimizerOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_MAKE_OPTIMIZER_H_
