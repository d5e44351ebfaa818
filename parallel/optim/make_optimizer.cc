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

struct Counter {
  int operator()(const SgdOptions& options) const {
    return options.momentum == 0 ? 0 : 1;
  }
  int operator()(const AdamOptions& options) const {
    return options.amsgrad ? 3 : 2;
  }
  int operator()(const AdamWOptions& options) const {
    return options.amsgrad ? 3 : 2;
  }
};

}  // namespace

int StateNumbers(const OptimizerOptions& options) {
  return absl::visit(Counter(), options);
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  return absl::visit(Maker{buffers, share_of}, options);
}

}  // namespace tandem
