// One of the optimizers, from whichever options are given.

#ifndef TANDEM_PARALLEL_MAKE_OPTIMIZER_H_
#define TANDEM_PARALLEL_MAKE_OPTIMIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/variant.h"
#include "parallel/adam.h"
#include "parallel/optimizer.h"
#include "parallel/sgd.h"

namespace tandem {

using OptimizerOptions = absl::variant<SgdOptions, AdamOptions, AdamWOptions>;

// MakeSgd, MakeAdam or MakeAdamW. `buffers` must outlive the optimizer.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, const FlatBuffers& buffers);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_MAKE_OPTIMIZER_H_
