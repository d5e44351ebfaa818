#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/base/end_process.h"
#include "core/base/owned_fd.h"
#include "core/base/system_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::system_test {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;

struct Speaker {
  ~Speaker() { std::fputs("destroyed", stderr); }
};

[[noreturn]] void End() {
  static const Speaker speaker;
  EndProcess(3);
}

TEST(EndProcessTest, RunsNoDestructors) {
  EXPECT_EXIT(End(), ExitedWithCode(3), Not(HasSubstr("destroyed")));
}

TEST(EndProcessTest, WritesOutWhatIsBuffered) {
  const auto end = [] {
    // A pipe or a file is like this: written when it is full.
    setvbuf(stderr, nullptr, _IOFBF, 4096);
    std::fputs("to stderr", stderr);
    EndProcess(0);
  };
  EXPECT_EXIT(end(), ExitedWithCode(0), HasSubstr("to stderr"));
}

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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SystemErrorTest, TheLimitOnOpenFilesIsNamed) {
  EXPECT_THAT(SystemError(EMFILE, "open a").message(),
              AllOf(HasSubstr("open a"), HasSubstr("ulimit -n")));
  EXPECT_THAT(SystemError(ENFILE, "open a").message(),
              HasSubstr("fs.file-max"));
  EXPECT_THAT(SystemError(ENOENT, "open a").message(),
              AllOf(HasSubstr("open a"), Not(HasSubstr("limit"))));
}

TEST(StartErrorTest, TheLimitsOnProcessesAreNamed) {
  EXPECT_THAT(StartError(EAGAIN, "fork failed").message(),
              AllOf(HasSubstr("fork failed"), HasSubstr("ulimit -u"),
                    HasSubstr("pids.max")));
  EXPECT_THAT(StartError(ENOMEM, "fork failed").message(),
              AllOf(HasSubstr("fork failed"), Not(HasSubstr("limit"))));
  EXPECT_THAT(StartError(EMFILE, "fork failed").message(),
              HasSubstr("ulimit -n"));
}

}  // namespace
}  // namespace tandem::system_test
