// Owned file descriptor: closed with its owner.

#ifndef TANDEM_CORE_BASE_OWNED_FD_H_
#define TANDEM_CORE_BASE_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace tandem {

// Movable. Not thread-safe.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  // Somebody else's from here on.
  int Release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;  // none
};

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_OWNED_FD_H_
