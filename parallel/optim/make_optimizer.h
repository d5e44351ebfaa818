// Optimizer factory: an optimizer from whichever options are given.

#ifndef TANDEM_PARALLEL_OPTIM_MAKE_OPTIMIZER_H_
#define TANDEM_PARALLEL_OPTIM_MAKE_OPTIMIZER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {

// SGD, Adam, AdamW or Muon. What `buffers` lists must outlive the optimizer:
// all of a model's flat buffers, or those of one parameter group
// (Replica::flat_buffers_of). Errors: MakeOptimizerRule's (optimizer_rule.h);
// InvalidArgument, naming it, for a parameter that Muon cannot step, which is
// no matrix.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of = nullptr);

// One optimizer for all parameter groups (torch.optim's param_groups):
// `options[g]` are for the buffers of group g; a group may have none.
// InvalidArgument, naming a parameter, for a buffer of a further group.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeGroupedOptimizer(
    const std::vector<OptimizerOptions>& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of = nullptr);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_MAKE_OPTIMIZER_H_
