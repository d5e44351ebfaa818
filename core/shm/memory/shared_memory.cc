#include "core/shm/memory/shared_memory.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
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

namespace {

size_t RoundToPages(size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Populated, so that the first use of each page is no fault.
absl::StatusOr<void*> MapRange(int fd, size_t offset, size_t bytes) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
           fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, "map shared memory");
  }
  return data;
}

}  // namespace

ShmArena::ShmArena(OwnedFd fd) : fd_(std::move(fd)), owner_(getpid()) {}

absl::StatusOr<std::shared_ptr<ShmArena>> ShmArena::Create() {
  TANDEM_ASSIGN_OR_RETURN(OwnedFd fd, NewSharedMemory(0));
  return std::shared_ptr<ShmArena>(new ShmArena(std::move(fd)));
}

absl::StatusOr<std::shared_ptr<ShmArena>> ShmArena::OfProcess() {
  static auto* const mutex = new absl::Mutex;
  // Never destroyed: tensors may live longer than any other object.
  static auto* const arena = new std::shared_ptr<ShmArena>;
  absl::MutexLock lock(mutex);
  if (*arena == nullptr || (*arena)->owner_ != getpid()) {
    TANDEM_ASSIGN_OR_RETURN(*arena, Create());
  }
  return *arena;
}

absl::StatusOr<void*> ShmArena::Allocate(size_t bytes) {
  CHECK_GT(bytes, 0U);
  bytes = RoundToPages(bytes);
  absl::MutexLock lock(&mutex_);
  const Extent extent{TakeRange(bytes), bytes};
  absl::Status status = ReserveSharedMemory(fd(), extent.offset, bytes);
  if (status.ok()) {
    absl::StatusOr<void*> data = MapRange(fd(), extent.offset, bytes);
    if (data.ok()) {
      used_[reinterpret_cast<uintptr_t>(*data)] = extent;
      return data;
    }
    status = data.status();
  }
  ReleaseSharedMemory(fd(), extent.offset, bytes);
  ReturnRange(extent);
  return status;
}

void ShmArena::Free(void* data) {
  absl::MutexLock lock(&mutex_);
  const auto found = used_.find(reinterpret_cast<uintptr_t>(data));
  CHECK(found != used_.end()) << "not an allocation of this arena";
  const Extent extent = found->second;
  used_.erase(found);
  munmap(data, extent.bytes);
  // A child that was forked has the mapping, but the memory is its parent's.
  if (owner_ != getpid()) return;
  ReleaseSharedMemory(fd(), extent.offset, extent.bytes);
  ReturnRange(extent);
}

std::optional<int64_t> ShmArena::FindOffset(const void* data,
                                            size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  absl::MutexLock lock(&mutex_);
  auto after = used_.upper_bound(address);
  if (after == used_.begin()) return std::nullopt;
  const auto& [start, extent] = *--after;
  const size_t within = address - start;
  if (within > extent.bytes || bytes > extent.bytes - within) {
    return std::nullopt;
  }
  return static_cast<int64_t>(extent.offset + within);
}

// First fit: buffers are few and large.
size_t ShmArena::TakeRange(size_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, available] = *it;
    if (available < bytes) continue;
    free_.erase(it);
    if (available > bytes) free_[offset + bytes] = available - bytes;
    return offset;
  }
  return std::exchange(end_, end_ + bytes);
}

void ShmArena::ReturnRange(Extent extent) {
  auto after = free_.upper_bound(extent.offset);
  if (after != free_.end() && extent.offset + extent.bytes == after->first) {
    extent.bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == extent.offset) {
      before->second += extent.bytes;
      return;
    }
  }
  free_[extent.offset] = extent.bytes;
}

}  // namespace tandem
