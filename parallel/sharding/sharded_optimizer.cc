#include "parallel/sharding/sharded_optimizer.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/mesh/mesh.h"
#include "parallel/sharding/share_exchange.h"

namespace tandem {
namespace {

bool IsShared(const FlatBuffer& buffer) {
  return buffer.traits().reduces_over(kDataAxis);
}

FlatBufferList SharedOf(const FlatBufferList& buffers) {
  std::vector<FlatBuffer*> shared;
  for (FlatBuffer* buffer : buffers) {
    if (IsShared(*buffer)) shared.push_back(buffer);
  }
  return FlatBufferList(std::move(shared));
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(GroupedOptimizer optimizer,
                                   Communicator& group)
    : optimizer_(std::move(optimizer)),
      group_(&group),
      shared_(SharedOf(optimizer_.buffers())) {}

absl::StatusOr<ShardedOptimizer> ShardedOptimizer::Create(
    const std::vector<OptimizerOptions>& options, const FlatBufferList& buffers,
    Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(
      GroupedOptimizer optimizer,
      GroupedOptimizer::Create(
          options, buffers, [&group](const FlatBuffer& buffer) {
            return IsShared(buffer) ? ShareIn(group) : OptimizerShare();
          }));
  return ShardedOptimizer(std::move(optimizer), group);
}

absl::Status ShardedOptimizer::Step(double learning_rate) {
  for (const FlatBuffer* buffer : optimizer_.buffers()) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { optimizer_.Step(learning_rate); }, "optimizer step"));
  return GatherValues(shared_, *group_, ++steps_);
}

absl::StatusOr<NamedTensors> ShardedOptimizer::GatherState() const {
  return optimizer_.GatherState(
      [this](const FlatBuffer& buffer, const at::Tensor& mine) {
        return GatherOnFirst(buffer, mine, *group_);
      });
}

}  // namespace tandem
