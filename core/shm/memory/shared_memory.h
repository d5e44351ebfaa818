// Memory that processes share without a name: a memfd, handed over as a file
// descriptor, so that nothing is left behind however a process ends.

#ifndef TANDEM_CORE_SHM_MEMORY_SHARED_MEMORY_H_
#define TANDEM_CORE_SHM_MEMORY_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_SHARED_MEMORY_H_
