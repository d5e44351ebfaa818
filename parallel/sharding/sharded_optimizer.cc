#include "parallel/sharding/sharded_optimizer.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/sharding/optimizer_sharding.h"

namespace tandem {

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<Optimizer> optimizer,
                                   Communicator& group)
    : optimizer_(std::move(optimizer)), group_(&group) {}

absl::StatusOr<ShardedOptimizer> ShardedOptimizer::Create(
    const std::vector<OptimizerOptions>& options, const FlatBufferList& buffers,
    Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Optimizer> optimizer,
      MakeGroupedOptimizer(options, buffers,
                           [&group](const FlatBuffer& buffer) {
                             return ShareIn(group, buffer);
                           }));
  return ShardedOptimizer(std::move(optimizer), group);
}

absl::Status ShardedOptimizer::Step(double learning_rate) {
  for (const FlatBuffer* buffer : optimizer_->buffers()) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { optimizer_->Step(learning_rate); }, "optimizer step"));
  return GatherValues(optimizer_->buffers(), *group_, ++steps_);
}

absl::StatusOr<NamedTensors> ShardedOptimizer::GatherState() const {
  return optimizer_->GatherState(
      [this](const FlatBuffer& buffer, const at::Tensor& mine) {
        return GatherOnFirst(buffer, mine, *group_);
      });
}

}  // namespace tandem
