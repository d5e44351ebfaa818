// Memory of this process that other processes can map: where tensors live that
// ranks of one host reduce without copying them first.

#ifndef TANDEM_CORE_SHM_MEMORY_ARENA_H_
#define TANDEM_CORE_SHM_MEMORY_ARENA_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/shm/memory/shared_memory.h"

namespace tandem {

// One memfd, of which each allocation is a range of pages with a mapping of its
// own. What is freed is given back to the system at once. Thread-safe.
class ShmArena {
 public:
  // The arena of this process; one in a child after a fork is a new one. It is
  // one for all groups, so that a tensor takes part in any of them.
  static absl::StatusOr<std::shared_ptr<ShmArena>> OfProcess();

  // A new arena, for tests.
  static absl::StatusOr<std::shared_ptr<ShmArena>> Create();

  // `bytes` (1 at least) zeros, on a page boundary; reserved, so that touching
  // them cannot fail. ResourceExhausted when there is no memory.
  absl::StatusOr<void*> Allocate(size_t bytes);

  // Gives back what Allocate() returned.
  void Free(void* data);

  // Where these bytes lie in the file; nothing if they are not wholly in one
  // allocation of this arena.
  std::optional<int64_t> OffsetOf(const void* data, size_t bytes) const;

  int fd() const { return fd_.get(); }

 private:
  struct Extent {
    size_t offset;
    size_t bytes;
  };

  explicit ShmArena(OwnedFd fd);

  size_t TakeRange(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnRange(Extent extent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const OwnedFd fd_;
  const pid_t owner_;
  mutable absl::Mutex mutex_;
  size_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // of what was ever used
  std::map<size_t, size_t> free_ ABSL_GUARDED_BY(mutex_);     // offset, bytes
  std::map<uintptr_t, Extent> used_ ABSL_GUARDED_BY(mutex_);  // by address
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_ARENA_H_
