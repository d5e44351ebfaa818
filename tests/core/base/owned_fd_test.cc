#include "core/base/owned_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace tandem::owned_fd_test {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) != -1; }

int Open() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(OwnedFd, ClosesWhatItOwns) {
  const int fd = Open();
  {
    const OwnedFd owner(fd);
    EXPECT_TRUE(owner);
    EXPECT_EQ(owner.get(), fd);
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(OwnedFd, MovesAndReleases) {
  OwnedFd first(Open());
  const int fd = first.get();
  OwnedFd second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(second.get(), fd);
  {
    OwnedFd third;
    third = std::move(second);
    EXPECT_EQ(third.Release(), fd);
    EXPECT_FALSE(third);
  }
  EXPECT_TRUE(IsOpen(fd));
  close(fd);
}

}  // namespace
}  // namespace tandem::owned_fd_test
