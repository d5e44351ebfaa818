// Shared-memory group: the ranks of one host, and all that one of them has of
// their common memory.

#ifndef TANDEM_CORE_SHM_GROUP_H_
#define TANDEM_CORE_SHM_GROUP_H_

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/status/statusor.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/segment.h"
#include "core/shm/memory/shared_memory.h"
#include "core/shm/point_to_point.h"
#include "core/shm/queue.h"
#include "core/store/store.h"

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

class ShmGroup {
 public:
  // Meets the other ranks of this host on `store`; see ConnectShm(). `names`:
  // what messages call the ranks, unless it is empty.
  static absl::StatusOr<std::shared_ptr<ShmGroup>> Create(
      const StorePtr& store, int rank, int size,
      std::chrono::milliseconds timeout, std::vector<int> names = {});

  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return segment_.size(); }
  const ShmArena& arena() const { return *arena_; }
  // Tensors in it hold it.
  const std::shared_ptr<ShmArena>& shared_arena() const { return arena_; }
  ShmQueue& queue() { return *queue_; }
  ShmPointToPoint& mail() { return *mail_; }

  // Unavailable, as waits have it, when another rank has died, given up or
  // left.
  absl::Status CheckPeers() const;

  // Finishes what is queued and leaves: a peer that waits for more is told so.
  // Whoever calls it again waits for the first to be through. Thread-safe.
  void Close();

 private:
  ShmGroup(int rank, ShmSegment segment, ShmConnections connections,
           std::shared_ptr<ShmArena> arena);

  const int rank_;
  ShmSegment segment_;
  ShmConnections connections_;
  const std::shared_ptr<ShmArena> arena_;
  std::unique_ptr<ShmMonitor> monitor_;
  std::unique_ptr<ShmQueue> queue_;
  std::unique_ptr<ShmPointToPoint> mail_;
  absl::once_flag closed_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_GROUP_H_
