#include "parallel/optim/make_optimizer.h"

#include "parallel/optim/adam.h"
#include "parallel/optim/sgd.h"

namespace tandem {
namespace {

struct Maker {
  const FlatBufferList& buffers;
  const ShareOfBuffer& share_of;

  auto operator()(const SgdOptions& options) const {
    return MakeSgd(options, buffers, share_of);
  }
  auto operator()(const AdamOptions& options) const {
    return MakeAdam(options, buffers, share_of);
  }
  auto operator()(const AdamWOptions& options) const {
    return MakeAdamW(options, buffers, share_of);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  return absl::visit(Maker{buffers, share_of}, options);
}

}  // namespace tandem
