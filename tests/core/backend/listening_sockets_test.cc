#include "core/backend/listening_sockets.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "core/base/owned_fd.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A connection that is there within a moment, or none.
OwnedFd Knock(int port) {
  OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  pollfd ready{fd.get(), POLLOUT, 0};
  if (poll(&ready, 1, /*timeout in ms=*/200) <= 0) return OwnedFd();
  return fd;
}

TEST(ListeningSocketsTest, ThoseOfTcpThatListenAreSeen) {
  EXPECT_THAT(ListeningDescriptors(), IsEmpty());
  const OwnedFd idle(socket(AF_INET, SOCK_STREAM, 0));
  const OwnedFd local(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(listen(local.get(), 1), 0);
  const OwnedFd four(ListenOn("127.0.0.1", 0).value().fd);
  EXPECT_THAT(ListeningDescriptors(), ElementsAre(four.get()));
}

TEST(ListeningSocketsTest, DescriptorsAreOfWhatWasMade) {
  const OwnedFd before(ListenOn("127.0.0.1", 0).value().fd);
  OwnedFd made;
  EXPECT_THAT(DescriptorsOf([] {}), IsEmpty());
  const auto seen =
      DescriptorsOf([&] { made = OwnedFd(ListenOn("127.0.0.1", 0)->fd); });
  EXPECT_THAT(seen, ElementsAre(made.get()));
}

TEST(ListeningSocketsTest, AShutOneLetsNobodyInAndKeepsWhoIsThere) {
  const BoundSocket socket = ListenOn("127.0.0.1", 0).value();
  const OwnedFd listener(socket.fd);
  const OwnedFd before = Knock(socket.port);
  ASSERT_TRUE(before);
  const OwnedFd accepted(accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(ShutToNewConnections(listener.get()).ok());
  EXPECT_FALSE(Knock(socket.port));
  char byte = 0;
  ASSERT_EQ(send(before.get(), "x", 1, 0), 1);
  EXPECT_EQ(recv(accepted.get(), &byte, 1, 0), 1);
  ASSERT_EQ(send(accepted.get(), "y", 1, 0), 1);
  pollfd ready{before.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, /*timeout in ms=*/10000), 1);
}

TEST(ListeningSocketsTest, WhatIsNoSocketIsAnError) {
  EXPECT_FALSE(ShutToNewConnections(-1).ok());
}

}  // namespace
}  // namespace tandem
