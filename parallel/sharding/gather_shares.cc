#include "parallel/sharding/gather_shares.h"

#include <ATen/core/grad_mode.h>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/partitioned_collectives.h"

namespace tandem {

absl::StatusOr<PendingCollective> StartGatherShares(
    const FlatBuffer& buffer, const at::Tensor& whole, const at::Tensor& mine,
    Communicator& group, const SharesPurpose& purpose) {
  const at::NoGradGuard no_grad;
  if (SharesAreEqual(buffer, group.size())) {
    return StartAllGather(group, whole, mine,
                          [purpose] { return purpose(std::nullopt); });
  }
  const auto part = [&](int rank) {
    const ElementSpan span = ShareSpan(buffer, {rank, group.size()});
    return whole.narrow(0, span.begin, span.length());
  };
  const at::Tensor own = part(group.rank());
  if (own.const_data_ptr() != mine.const_data_ptr()) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] { own.copy_(mine); }));
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const at::Tensor share = part(rank);
    if (share.numel() == 0) continue;
    TANDEM_RETURN_IF_ERROR(group.Broadcast(
        share, rank, [purpose, rank] { return purpose(rank); }));
  }
  return PendingCollective();
}

}  // namespace tandem
