// Store of a job: where the ranks of a launch meet.

#ifndef TANDEM_CORE_LAUNCH_OPEN_STORE_H_
#define TANDEM_CORE_LAUNCH_OPEN_STORE_H_

#include <chrono>

#include "absl/status/statusor.h"
#include "core/launch/launch.h"
#include "core/store/store.h"

namespace tandem {

// Opens the store that `launch.rendezvous` names: a FileStore, a TCPStore that
// the launcher or rank 0 serves on rendezvous.host, or for one rank a
// HashStore. InvalidArgument where rank 0 would serve nodes that cannot reach
// it (CheckOthersCanReach). `timeout` bounds the waits of the store, and that
// for it.
absl::StatusOr<StorePtr> OpenStore(const Launch& launch,
                                   std::chrono::milliseconds timeout);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_OPEN_STORE_H_
