#include "core/shm/memory/shared_memory.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"
#include "core/device/host_resources.h"

namespace tandem {
namespace {

constexpr unsigned kNoExecSeal = 0x0008U;  // MFD_NOEXEC_SEAL, Linux 6.3

int CreateMemfd() {
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = static_cast<int>(
      syscall(SYS_memfd_create, "tandem", flags | kNoExecSeal));
  if (fd >= 0 || errno != EINVAL) return fd;
  return static_cast<int>(syscall(SYS_memfd_create, "tandem", flags));
}

absl::Status Failed(const char* what) {
  return SystemError(errno, absl::StrCat("shared memory: ", what));
}

}  // namespace

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

absl::StatusOr<SharedMapping> SharedMapping::Map(int fd, size_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(const size_t size, SharedMemorySize(fd));
  if (bytes > size) {
    return absl::OutOfRangeError(absl::StrCat(
        "shared memory: ", bytes, " bytes asked for, ", size, " there"));
  }
  SharedMapping mapping;
  if (bytes == 0) return mapping;
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Failed("mmap");
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.bytes_ = bytes;
  return mapping;
}

absl::StatusOr<OwnedFd> NewSharedMemory(size_t bytes) {
  OwnedFd fd(CreateMemfd());
  if (!fd) return Failed("memfd_create");
  if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return Failed("fchmod");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Failed("ftruncate");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return Failed("seal");
  return fd;
}

absl::Status ReserveSharedMemory(int fd, size_t offset, size_t bytes) {
  // Nothing stops fallocate() before all memory is gone and the kernel kills
  // processes to get some.
  const uint64_t available = AvailableMemory();
  if (bytes > available) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot reserve ", bytes, " bytes of shared memory: ", available,
        " bytes are available"));
  }
  int result;
  do {
    result =
        fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot reserve ", bytes, " bytes of shared memory: ",
                   absl::ErrnoToStatus(errno, "fallocate").message()));
}

absl::StatusOr<size_t> SharedMemorySize(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return Failed("fstat");
  return static_cast<size_t>(status.st_size);
}

void ReleaseSharedMemory(int fd, size_t offset, size_t bytes) {
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

}  // namespace tandem
