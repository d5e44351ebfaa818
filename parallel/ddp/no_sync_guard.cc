#include "parallel/ddp/no_sync_guard.h"

#include <utility>

#include "parallel/ddp/reducer.h"

namespace tandem {

NoSyncGuard::NoSyncGuard(std::shared_ptr<Reducer> reducer)
    : reducer_(std::move(reducer)), before_(reducer_->synchronise()) {
  reducer_->set_synchronise(false);
}

NoSyncGuard::~NoSyncGuard() {
  if (reducer_ != nullptr) reducer_->set_synchronise(before_);
}

}  // namespace tandem
