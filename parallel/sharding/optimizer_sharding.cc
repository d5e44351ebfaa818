#include "parallel/sharding/optimizer_sharding.h"

#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/comm/pending_collective.h"
#include "core/device/memory_category.h"
#include "core/mesh/mesh.h"
#include "parallel/sharding/gather_shares.h"

namespace tandem {
namespace {

at::Tensor Part(const at::Tensor& flat, const ElementSpan& span) {
  return flat.narrow(0, span.begin, span.length());
}

std::string SharePurpose(int rank, const Communicator& group) {
  return absl::StrCat("rank ", group.NameOf(rank),
                      "'s share of the optimizer's state");
}

int64_t LargestSlot(const FlatBuffer& buffer) {
  int64_t largest = 1;
  for (const FlatSlot& slot : buffer.slots()) {
    largest = std::max(largest, slot.end - slot.offset);
  }
  return largest;
}

absl::Status SendToFirst(const at::Tensor& mine, int64_t most,
                         Communicator& group) {
  for (int64_t begin = 0; begin < mine.numel(); begin += most) {
    const int64_t length = std::min(most, mine.numel() - begin);
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective sent,
        group.StartSend(mine.narrow(0, begin, length), /*to=*/0, /*tag=*/0,
                        [&] { return SharePurpose(group.rank(), group); }));
    TANDEM_RETURN_IF_ERROR(sent.Wait());
  }
  return absl::OkStatus();
}

// By way of `device`: its backend may reach no other memory.
absl::Status ReceiveFrom(int rank, const at::Tensor& into, c10::Device device,
                         int64_t most, Communicator& group) {
  if (into.numel() == 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor piece, CatchTorchOr([&] {
        const MemoryCategoryScope scope(MemoryCategory::kTemporaries);
        return at::empty({std::min(most, into.numel())},
                         into.options().device(device));
      }));
  for (int64_t begin = 0; begin < into.numel(); begin += most) {
    const int64_t length = std::min(most, into.numel() - begin);
    const at::Tensor part = piece.narrow(0, 0, length);
    TANDEM_ASSIGN_OR_RETURN(PendingCollective coming,
                            group.StartReceive(part, rank, /*tag=*/0, [&] {
                              return SharePurpose(rank, group);
                            }));
    TANDEM_RETURN_IF_ERROR(coming.Wait());
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { into.narrow(0, begin, length).copy_(part); }));
  }
  return absl::OkStatus();
}

}  // namespace

const char* Word(Sharding sharding) {
  switch (sharding) {
    case Sharding::kAuto:
      return "auto";
    case Sharding::kOptimizer:
      return "optimizer";
    case Sharding::kGradients:
      return "gradients";
    case Sharding::kParameters:
      return "parameters";
    case Sharding::kOff:
      break;
  }
  return "off";
}

Sharding ShardingNamed(absl::string_view word) {
  for (const Sharding each : {Sharding::kAuto, Sharding::kOptimizer,
                              Sharding::kGradients, Sharding::kParameters}) {
    if (word == Word(each)) return each;
  }
  return Sharding::kOff;
}

int ShardDegree(Sharding sharding, int data_shard, int replicas) {
  if (sharding == Sharding::kOff) return 1;
  if (data_shard > 0) return data_shard;
  return ShardsGradients(sharding) ? replicas : 1;
}

ShardingChoice ChooseSharding(Sharding asked, const OptimizerWork& work,
                              const Communicator* replicas,
                              const std::string& excluded_by) {
  if (replicas == nullptr || replicas->size() == 1) {
    return {false, "there is one replica"};
  }
  if (asked == Sharding::kOff) return {false, "not asked for"};
  if (asked != Sharding::kAuto) {
    CHECK(excluded_by.empty()) << excluded_by;
    return {true, "asked for"};
  }
  if (!excluded_by.empty()) return {false, excluded_by};
  if (!SharesMemory(*replicas)) {
    return {false, "replicas do not share memory, values would be sent"};
  }
  if (work.parameters < kLeastShardedParameters) {
    return {false,
            absl::StrCat(work.parameters, " parameters; sharing pays from ",
                         kLeastShardedParameters, " on")};
  }
  if (work.state_numbers < kLeastStateNumbers) {
    return {false, "an optimizer with so little state does not pay everywhere"};
  }
  return {true, absl::StrCat(work.parameters, " parameters")};
}

OptimizerShare ShareIn(const Communicator& group, const FlatBuffer& buffer) {
  if (!buffer.traits().reduces_over(kDataAxis)) return OptimizerShare();
  return {group.rank(), group.size()};
}

absl::Status GatherValues(const FlatBufferList& buffers, Communicator& group,
                          int64_t step) {
  const auto purpose = [step, &group](std::optional<int> rank) {
    return absl::StrCat(
        "the parameters that ",
        rank ? absl::StrCat("rank ", group.NameOf(*rank)) : "each rank",
        " updates at the end of step ", step);
  };
  for (const FlatBuffer* buffer : buffers) {
    if (ShareIn(group, *buffer).is_whole()) continue;
    if (buffer->value_memory().is_sharded()) continue;
    const at::Tensor& values = buffer->values();
    const ElementSpan mine = ShareSpan(*buffer, {group.rank(), group.size()});
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective gather,
        StartGatherShares(*buffer, values, Part(values, mine), group, purpose));
    TANDEM_RETURN_IF_ERROR(gather.Wait());
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> GatherOnFirst(const FlatBuffer& buffer,
                                         const at::Tensor& mine,
                                         Communicator& group) {
  const int64_t most = LargestSlot(buffer);
  if (group.rank() != 0) {
    TANDEM_RETURN_IF_ERROR(SendToFirst(mine, most, group));
    return at::Tensor();
  }
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor all, CatchTorchOr([&] {
        const at::Tensor whole =
            at::empty(buffer.values().sizes(), buffer.values().scalar_type());
        Part(whole, ShareSpan(buffer, ShareIn(group, buffer))).copy_(mine);
        return whole;
      }));
  for (int rank = 1; rank < group.size(); ++rank) {
    TANDEM_RETURN_IF_ERROR(
        ReceiveFrom(rank, Part(all, ShareSpan(buffer, {rank, group.size()})),
                    mine.device(), most, group));
  }
  return all;
}

}  // namespace tandem
