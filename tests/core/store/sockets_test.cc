#include "core/store/sockets.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "core/testing/statuses.h"

// Stands before the C library's: what /etc/hosts says is the machine's affair.
//   node0.test   127.0.1.1, as Debian has it for a machine's own name
//   master.test  127.0.0.1, as PyTorchJob has it on the master alone
//   pair.test    192.0.2.1, which nobody has, then 127.0.0.1
extern "C" int getaddrinfo(const char* node, const char* service,
                           const addrinfo* hints, addrinfo** found) {
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string host = node == nullptr ? "" : node;
  const bool by_name = (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (by_name && host == "node0.test") {
    return real("127.0.1.1", service, hints, found);
  }
  if (by_name && host == "master.test") {
    return real("127.0.0.1", service, hints, found);
  }
  if (!by_name || host != "pair.test") return real(node, service, hints, found);
  const int error = real("192.0.2.1", service, hints, found);
  if (error != 0) return error;
  return real("127.0.0.1", service, hints, &(*found)->ai_next);
}

namespace {

int loopback_error = 0;  // 0: as it is

}  // namespace

// Stands before the C library's: whether loopback is up, and has IPv6, is the
// machine's affair.
extern "C" int connect(int fd, const sockaddr* address, socklen_t length) {
  static const auto real =
      reinterpret_cast<decltype(&connect)>(dlsym(RTLD_NEXT, "connect"));
  if (loopback_error == 0) return real(fd, address, length);
  errno = loopback_error;
  return -1;
}

namespace tandem::sockets_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SocketsTest, TowardsLoopbackIsLoopback) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1").value(), "127.0.0.1");
  EXPECT_FALSE(LocalAddressTowards("no.such.host.invalid").ok());
}

TEST(SocketsTest, TheSecondAddressServesWhereTheFirstIsNotOurs) {
  const auto socket = ListenOn("pair.test", 0);
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_TRUE(ConnectWhenServed("127.0.0.1", socket->port, seconds(30)).ok());
  // Its address decides, not the next one that is free.
  const absl::Status second = ListenOn("pair.test", socket->port).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists) << second;
  close(socket->fd);
}

TEST(SocketsTest, ANameThatIsLoopbackHereIsOutOfOthersReach) {
  const absl::Status status = CheckOthersCanReach("node0.test");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"node0.test\" is 127.0.1.1"),
                                      HasSubstr("--master_addr=ADDRESS")));
}

TEST(SocketsTest, LoopbackThatWasAskedForIsTakenAsMeant) {
  for (const char* host : {"127.0.0.1", "127.0.1.1", "::1"}) {
    EXPECT_TRUE(CheckOthersCanReach(host).ok()) << host;
  }
  EXPECT_THAT(CheckOthersCanReach("master.test").message(),
              HasSubstr("127.0.0.1 where all nodes are this machine"));
  EXPECT_TRUE(CheckOthersCanReach("pair.test").ok());
  EXPECT_TRUE(CheckOthersCanReach("no.such.host.invalid").ok());
}

TEST(SocketsTest, AllInterfacesAreNoAddressOfAStore) {
  for (const char* host : {"0.0.0.0", "::", "0"}) {
    EXPECT_THAT(ListenOn(host, 0).status().message(),
                HasSubstr("stands for all interfaces"))
        << host;
    const absl::Status status = CheckOneInterface(host);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << host;
  }
  for (const char* host : {"127.0.0.1", "::1", "no.such.host.invalid"}) {
    EXPECT_TRUE(CheckOneInterface(host).ok()) << host;
  }
}

// Torchrun's store may have that for its address.
TEST(ConnectWhenServedTest, AllInterfacesAreThisMachine) {
  const BoundSocket socket = ListenOn("127.0.0.1", 0).value();
  EXPECT_TRUE(ConnectWhenServed("0.0.0.0", socket.port, seconds(30)).ok());
  close(socket.fd);
}

TEST(ConnectWhenServedTest, WhatCannotBeReachedIsNotWaitedFor) {
  const struct {
    const char* host;
    int error;
    absl::StatusCode code;
    const char* words;
  } rows[] = {
      {"127.0.0.1", ENETUNREACH, absl::StatusCode::kFailedPrecondition,
       "ip link set lo up"},
      {"::1", EADDRNOTAVAIL, absl::StatusCode::kFailedPrecondition,
       "net.ipv6.conf.lo.disable_ipv6"},
      {"no.such.host.invalid", 0, absl::StatusCode::kInvalidArgument,
       "\"no.such.host.invalid\""},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.host);
    loopback_error = row.error;
    const absl::Status status =
        ConnectWhenServed(row.host, 1, std::chrono::hours(1000)).status();
    loopback_error = 0;
    EXPECT_THAT(status, StatusIs(row.code, row.words));
  }
}

TEST(ConnectWhenServedTest, AFreePortIsWaitedFor) {
  loopback_error = EADDRNOTAVAIL;
  const absl::Status status =
      ConnectWhenServed("127.0.0.1", 1, milliseconds(100)).status();
  loopback_error = 0;
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ConnectWhenServedTest, SaysEveryTenSecondsForWhomItWaits) {
  const BoundSocket socket = ListenOn("127.0.0.1", 0).value();
  close(socket.fd);
  testing::internal::CaptureStderr();
  const absl::Status status =
      ConnectWhenServed("127.0.0.1", socket.port, milliseconds(11500)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("waiting for 127.0.0.1:" + std::to_string(socket.port)));
}

}  // namespace
}  // namespace tandem::sockets_test
