#include "parallel/optim/make_optimizer.h"

#include "parallel/optim/adam.h"
#include "parallel/optim/sgd.h"

namespace tandem {
namespace {

struct Maker {
  const FlatBufferList& buffers;

  auto operator()(const SgdOptions& options) const {
    return MakeSgd(options, buffers);
  }
  auto operator()(const AdamOptions& options) const {
    return MakeAdam(options, buffers);
  }
  auto operator()(const AdamWOptions& options) const {
    return MakeAdamW(options, buffers);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, const FlatBufferList& buffers) {
  return absl::visit(Maker{buffers}, options);
}

}  // namespace tandem
