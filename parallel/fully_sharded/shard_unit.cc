#include "parallel/fully_sharded/shard_unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/intern.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_buffer.h"
#include "core/comm/partitioned_collectives.h"
#include "core/device/memory_category.h"
#include "core/flight/recorder.h"
#include "core/precision/low_precision_copy.h"
#include "parallel/sharding/gather_shares.h"

namespace tandem {
namespace {

absl::StatusOr<at::Tensor> MemoryFor(const ElementSpan& own,
                                     const at::Tensor& like,
                                     MemoryCategory category,
                                     const Communicator& group) {
  const MemoryCategoryScope scope(category);
  return NewGroupBuffer(group, own.length(), like.options());
}

at::Tensor PartOf(const at::Tensor& whole, const ElementSpan& span) {
  return whole.narrow(0, span.begin, span.length());
}

void ZeroUnused(const FlatBuffer& buffer) {
  for (size_t i = 0; i < buffer.slots().size(); ++i) {
    if (buffer.has_gradient(i)) continue;
    const FlatSlot& slot = buffer.slots()[i];
    buffer.grads().narrow(0, slot.offset, slot.numel).zero_();
  }
}

}  // namespace

absl::Status ShardBuffer(const ShardGroups& groups, bool shards_values,
                         bool shards_gradients, FlatBuffer& buffer) {
  const Communicator& ranks = *groups.reduces;
  const ElementSpan own = ShareSpan(buffer, {ranks.rank(), ranks.size()});
  if (shards_gradients) {
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor gradients,
        MemoryFor(own, buffer.grads(), MemoryCategory::kGradients, ranks));
    buffer.grad_memory().Shard(own, gradients);
  }
  if (!shards_values) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor values,
      MemoryFor(own, buffer.values(), MemoryCategory::kParameters,
                *groups.gathers));
  return CatchTorch([&] { buffer.value_memory().Shard(own, values); });
}

ShardUnit::ShardUnit(std::string name, std::vector<FlatBuffer*> buffers,
                     const ShardGroups& groups, bool shards_values,
                     std::optional<at::ScalarType> param_dtype)
    : name_(std::move(name)),
      parameters_(Intern(absl::StrCat("parameters of ", name_))),
      gradients_(Intern(absl::StrCat("gradients of ", name_))),
      buffers_(std::move(buffers)),
      groups_(groups),
      shards_values_(shards_values),
      param_dtype_(param_dtype),
      is_here_(!shards_values) {}

absl::Status ShardUnit::StartUnshard() {
  if (is_here_) return absl::OkStatus();
  is_here_ = true;
  for (FlatBuffer* buffer : buffers_) {
    TANDEM_RETURN_IF_ERROR(GathersCopies(*buffer) ? StartGatherCopies(*buffer)
                                                  : StartGather(*buffer));
  }
  return absl::OkStatus();
}

bool ShardUnit::GathersCopies(const FlatBuffer& buffer) const {
  return param_dtype_.has_value() && buffer.traits().gathers_low_precision &&
         *param_dtype_ != buffer.values().scalar_type();
}

absl::Status ShardUnit::UnshardValues() {
  if (!shards_values_) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Reshard());
  is_here_ = true;
  for (FlatBuffer* buffer : buffers_) {
    TANDEM_RETURN_IF_ERROR(StartGather(*buffer));
  }
  return Unshard();
}

absl::Status ShardUnit::Unshard() {
  TANDEM_RETURN_IF_ERROR(StartUnshard());
  for (PendingCollective& each : std::exchange(gathering_, {})) {
    TANDEM_RETURN_IF_ERROR(each.Wait());
  }
  return absl::OkStatus();
}

absl::Status ShardUnit::StartGather(FlatBuffer& buffer) {
  FlatMemory& memory = buffer.value_memory();
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { memory.TakeWhole(); }, name_));
  return Gather(buffer, memory.whole(), memory.Own());
}

// Each rank converts its share alone.
absl::Status ShardUnit::StartGatherCopies(FlatBuffer& buffer) {
  const FlatMemory& memory = buffer.value_memory();
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor copies, CatchTorchOr([&] {
        const at::NoGradGuard no_grad;
        const MemoryCategoryScope category(MemoryCategory::kParameters);
        at::Tensor made =
            at::empty({memory.whole().numel()},
                      memory.whole().options().dtype(*param_dtype_));
        PartOf(made, memory.own()).copy_(memory.Own());
        for (const FlatSlot& slot : buffer.slots()) {
          GiveLowPrecisionCopy(
              slot.parameter,
              made.as_strided(slot.parameter.sizes(), slot.parameter.strides(),
                              slot.offset));
        }
        return made;
      }));
  return Gather(buffer, copies, PartOf(copies, memory.own()));
}

absl::Status ShardUnit::Gather(FlatBuffer& buffer, const at::Tensor& whole,
                               const at::Tensor& mine) {
  Communicator& group = *groups_.gathers;
  const FlightPurposeScope flight({parameters_});
  TANDEM_ASSIGN_OR_RETURN(
      PendingCollective gathered,
      StartGatherShares(
          buffer, whole, mine, group,
          [what = parameters_](std::optional<int> /*rank*/) { return what; }));
  gathering_.push_back(std::move(gathered));
  return absl::OkStatus();
}

absl::Status ShardUnit::Reshard() {
  if (!shards_values_ || !is_here_) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Unshard());  // nobody may write to freed memory
  for (FlatBuffer* buffer : buffers_) {
    FlatMemory& memory = buffer->value_memory();
    if (memory.has_whole()) memory.ReleaseWhole();
    for (const FlatSlot& slot : buffer->slots()) {
      DropLowPrecisionCopy(slot.parameter);
    }
  }
  is_here_ = false;
  return absl::OkStatus();
}

absl::Status ShardUnit::BeginReplacing() {
  if (!shards_values_) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Reshard());
  is_here_ = true;
  return CatchTorch(
      [&] {
        for (FlatBuffer* buffer : buffers_) {
          buffer->value_memory().TakeWhole();
        }
      },
      name_);
}

absl::Status ShardUnit::EndReplacing() {
  if (!shards_values_) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    const at::NoGradGuard no_grad;
    for (FlatBuffer* buffer : buffers_) {
      FlatMemory& memory = buffer->value_memory();
      memory.Own().copy_(PartOf(memory.whole(), memory.own()));
    }
  }));
  return Reshard();
}

absl::Status ShardUnit::StartReduce(bool adds) {
  CHECK(!is_reducing()) << name_;
  for (FlatBuffer* buffer : buffers_) {
    TANDEM_ASSIGN_OR_RETURN(Reduction started, StartReduce(*buffer, adds));
    reductions_.push_back(std::move(started));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardUnit::Reduction> ShardUnit::StartReduce(FlatBuffer& buffer,
                                                            bool adds) {
  const at::NoGradGuard no_grad;
  Communicator& group = *groups_.reduces;
  FlatMemory& memory = buffer.grad_memory();
  TANDEM_RETURN_IF_ERROR(CatchTorch(
      [&] {
        if (!memory.has_whole()) {
          memory.TakeWhole();
          memory.whole().zero_();
        } else {
          ZeroUnused(buffer);
        }
      },
      name_));
  const auto purpose = [what = gradients_] { return what; };
  const FlightPurposeScope flight({gradients_});
  Reduction reduction = {&buffer, adds, {}};
  if (SharesAreEqual(buffer, group.size())) {
    TANDEM_ASSIGN_OR_RETURN(
        reduction.parts.emplace_back(),
        StartReduceScatterSum(group, memory.whole(),
                              PartOf(memory.whole(), memory.own()),
                              1.0 / groups_.divisor, purpose));
    return reduction;
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const ElementSpan span = ShareSpan(buffer, {rank, group.size()});
    if (span.length() == 0) continue;
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective sum,
        group.StartReduceSum(PartOf(memory.whole(), span), rank,
                             1.0 / groups_.divisor, purpose));
    reduction.parts.push_back(std::move(sum));
  }
  return reduction;
}

absl::Status ShardUnit::FinishReduce() {
  const at::NoGradGuard no_grad;
  for (Reduction& each : std::exchange(reductions_, {})) {
    for (PendingCollective& part : each.parts) {
      TANDEM_RETURN_IF_ERROR(part.Wait());
    }
    FlatMemory& memory = each.buffer->grad_memory();
    const at::Tensor mine = PartOf(memory.whole(), memory.own());
    if (groups_.copies != nullptr) {
      const FlightPurposeScope flight({gradients_});
      TANDEM_RETURN_IF_ERROR(groups_.copies->AllReduceSum(
          mine, [what = gradients_] { return what; }));
    }
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      at::Tensor own = memory.Own();
      each.adds ? own.add_(mine) : own.copy_(mine);
    }));
    memory.ReleaseWhole();
  }
  return absl::OkStatus();
}

}  // namespace tandem
