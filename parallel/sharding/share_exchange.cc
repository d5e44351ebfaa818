#include "parallel/sharding/share_exchange.h"

#include <ATen/ops/empty_like.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/pending_collective.h"
#include "core/device/memory_category.h"
#include "core/mesh/mesh.h"

namespace tandem {
namespace {

at::Tensor PartOf(const at::Tensor& flat, const ElementSpan& span) {
  return flat.narrow(0, span.begin, span.length());
}

std::string StateOf(int rank, const Communicator& group) {
  return absl::StrCat("rank ", group.NameOf(rank),
                      "'s share of the optimizer's state");
}

}  // namespace

OptimizerShare ShareIn(const Communicator& group, const FlatBuffer& buffer) {
  if (!buffer.traits().reduces_over(kDataAxis)) return OptimizerShare();
  return {group.rank(), group.size()};
}

absl::Status GatherValues(const FlatBufferList& buffers, Communicator& group,
                          int64_t step) {
  for (const FlatBuffer* buffer : buffers) {
    if (ShareIn(group, *buffer).is_whole()) continue;
    for (int rank = 0; rank < group.size(); ++rank) {
      const ElementSpan span = SpanOf(*buffer, {rank, group.size()});
      if (span.length() == 0) continue;
      TANDEM_RETURN_IF_ERROR(
          group.Broadcast(PartOf(buffer->values(), span), rank, [=, &group] {
            return absl::StrCat("the parameters that rank ", group.NameOf(rank),
                                " updates at the end of step ", step);
          }));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> GatherOnFirst(const FlatBuffer& buffer,
                                         const at::Tensor& mine,
                                         Communicator& group) {
  if (group.rank() != 0) {
    if (mine.numel() == 0) return at::Tensor();
    TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                            group.StartSend(mine, /*to=*/0, /*tag=*/0, [&] {
                              return StateOf(group.rank(), group);
                            }));
    TANDEM_RETURN_IF_ERROR(sent.Wait());
    return at::Tensor();
  }
  TANDEM_ASSIGN_OR_RETURN(
      at::Tensor all, CatchTorchOr([&] {
        const MemoryCategoryScope scope(MemoryCategory::kTemporaries);
        return at::empty_like(buffer.values());
      }));
  PartOf(all, SpanOf(buffer, ShareIn(group, buffer))).copy_(mine);
  for (int rank = 1; rank < group.size(); ++rank) {
    const ElementSpan span = SpanOf(buffer, {rank, group.size()});
    if (span.length() == 0) continue;
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective coming,
        group.StartReceive(PartOf(all, span), rank, /*tag=*/0,
                           [&, rank] { return StateOf(rank, group); }));
    TANDEM_RETURN_IF_ERROR(coming.Wait());
  }
  return all;
}

}  // namespace tandem
