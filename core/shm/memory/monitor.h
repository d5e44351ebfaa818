// Notices at once when a peer's process ends.

#ifndef TANDEM_CORE_SHM_MEMORY_MONITOR_H_
#define TANDEM_CORE_SHM_MEMORY_MONITOR_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/peer_descriptors.h"
#include "core/shm/memory/segment.h"
#include "core/shm/memory/shared_memory.h"

namespace tandem {

// A thread that sleeps until a peer's socket is closed or its process has
// ended. If that rank had not left, it is marked as dead in the shared memory,
// and all who wait there wake up.
class ShmMonitor {
 public:
  // Both must outlive it. An error where the process may open no more files.
  static absl::StatusOr<std::unique_ptr<ShmMonitor>> Create(
      ShmSegment* segment, const std::vector<ShmPeer>* peers);
  ~ShmMonitor();
  ShmMonitor(const ShmMonitor&) = delete;
  ShmMonitor& operator=(const ShmMonitor&) = delete;

 private:
  ShmMonitor(ShmSegment* segment, const std::vector<ShmPeer>* peers,
             OwnedFd stop);

  void Run(const std::vector<ShmPeer>& peers);

  ShmSegment* const segment_;
  std::vector<SharedFd> processes_;  // where the kernel has them
  OwnedFd stop_;                     // an eventfd
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_MONITOR_H_
