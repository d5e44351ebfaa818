#include "core/shm/memory/local_socket.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

namespace {

int gone_visitors = 0;  // that come next

}  // namespace

// Stands before the C library's: when a connection goes is the system's affair.
extern "C" int accept4(int fd, sockaddr* address, socklen_t* length,
                       int flags) {
  static const auto real =
      reinterpret_cast<decltype(&accept4)>(dlsym(RTLD_NEXT, "accept4"));
  if (gone_visitors == 0) return real(fd, address, length, flags);
  // The two errors that say so take turns.
  errno = gone_visitors-- % 2 == 0 ? EPROTO : ECONNABORTED;
  return -1;
}

namespace tandem {
namespace {

SocketDeadline In(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

// The soft limit on descriptors, until it is destroyed.
class FileLimit {
 public:
  explicit FileLimit(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = before_;
    lower.rlim_cur = files;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// The number that the next descriptor has.
int NextDescriptor() {
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(next);
  return next;
}

TEST(LocalDoorTest, WithoutDescriptorsWhoHasWaitedLongestGoes) {
  AuthenticatedListener door = AuthenticatedListener::Open().value();
  const LocalPeer silent = ConnectLocal(door.name(), In(30)).value();
  const LocalPeer right = ConnectLocal(door.name(), In(30)).value();
  const std::string message = door.secret() + "hello";
  ASSERT_TRUE(
      SendWithFds(right.fd.get(), message.data(), message.size(), {}).ok());
  const FileLimit one_more(static_cast<rlim_t>(NextDescriptor()) + 1);
  std::string heard(message.size(), '\0');
  const auto connection = door.Next(heard.data(), heard.size(), 0, In(30));
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(heard, message);
  EXPECT_EQ(connection->peer.pid, getpid());
}

TEST(LocalDoorTest, AVisitorThatHasGoneAgainIsNoError) {
  AuthenticatedListener door = AuthenticatedListener::Open().value();
  const LocalPeer right = ConnectLocal(door.name(), In(30)).value();
  const std::string message = door.secret() + "hello";
  ASSERT_TRUE(
      SendWithFds(right.fd.get(), message.data(), message.size(), {}).ok());
  gone_visitors = 2;
  std::string heard(message.size(), '\0');
  const auto connection = door.Next(heard.data(), heard.size(), 0, In(30));
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(heard, message);
  EXPECT_EQ(gone_visitors, 0);
}

TEST(LocalDoorTest, WithoutAnyDescriptorTheLimitIsNamed) {
  AuthenticatedListener door = AuthenticatedListener::Open().value();
  const LocalPeer knocks = ConnectLocal(door.name(), In(30)).value();
  const FileLimit none(static_cast<rlim_t>(NextDescriptor()));
  std::string heard(40, '\0');
  const absl::Status status =
      door.Next(heard.data(), heard.size(), 0, In(30)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("ulimit -n"), std::string::npos) << status;
}

}  // namespace
}  // namespace tandem
