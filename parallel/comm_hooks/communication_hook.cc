#include "parallel/comm_hooks/communication_hook.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"

namespace tandem {

absl::StatusOr<PendingCollective> StartAllReduceMean(at::Tensor tensor,
                                                     Communicator& group) {
  at::NoGradGuard no_grad;
  const int size = group.size();
  if ((size & (size - 1)) == 0) {
    return group.StartAllReduceSum(std::move(tensor), 1.0 / size);
  }
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { tensor.div_(size); }));
  return group.StartAllReduceSum(std::move(tensor));
}

}  // namespace tandem
