// Memory that processes share without a name: a memfd, handed over as a file
// descriptor, so that nothing is left behind however a process ends.

#ifndef TANDEM_CORE_SHM_MEMORY_SHARED_MEMORY_H_
#define TANDEM_CORE_SHM_MEMORY_SHARED_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/owned_fd.h"

namespace tandem {

// A mapping of a whole file, readable and writable, shared. Movable.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept { *this = std::move(other); }
  SharedMapping& operator=(SharedMapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMapping();

  // The first `bytes` of `fd`. OutOfRange when the file is shorter, for to
  // touch what is not there would kill the process.
  static absl::StatusOr<SharedMapping> Map(int fd, size_t bytes);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// A new memfd of `bytes` zeros (which take no memory until they are touched or
// reserved), readable by this user alone. It can grow, and can never shrink:
// whoever maps it need not fear that another cuts it off.
absl::StatusOr<OwnedFd> NewSharedMemory(size_t bytes);

// Takes memory for these bytes, growing the file to hold them.
// ResourceExhausted when there is not so much; touching them cannot fail
// afterwards.
absl::Status ReserveSharedMemory(int fd, size_t offset, size_t bytes);

// How long the file is.
absl::StatusOr<size_t> SharedMemorySize(int fd);

// Gives the memory of these bytes back; they read as zeros again.
void ReleaseSharedMemory(int fd, size_t offset, size_t bytes);

// Arena: memory of this process that other processes can map, where tensors
// live that ranks of one host reduce without copying them first. One memfd, of
// which each allocation is a range of pages with a mapping of its own. What is
// freed is given back to the system at once. Thread-safe.
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
  std::optional<int64_t> FindOffset(const void* data, size_t bytes) const;

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

#endif  // TANDEM_CORE_SHM_MEMORY_SHARED_MEMORY_H_
