// Guard of torch's no_sync(): gradients are gathered and not averaged.

#ifndef TANDEM_PARALLEL_DDP_NO_SYNC_GUARD_H_
#define TANDEM_PARALLEL_DDP_NO_SYNC_GUARD_H_

#include <memory>

namespace tandem {

class Reducer;

// While it lives, backward gathers gradients and averages nothing. It counts
// when backward begins, so it may be made around forward and backward or around
// backward alone. Movable.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(std::shared_ptr<Reducer> reducer);
  ~NoSyncGuard();
  NoSyncGuard(NoSyncGuard&&) = default;
  NoSyncGuard& operator=(NoSyncGuard&&) = delete;

 private:
  std::shared_ptr<Reducer> reducer_;
  bool before_ = true;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_NO_SYNC_GUARD_H_
