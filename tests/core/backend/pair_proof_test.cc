// Groups on Gloo whose ranks prove to each other who they are, and a stranger
// that has taken a rank's place.

#include "core/backend/pair_proof.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/status.h"
#include "core/backend/backend.h"
#include "core/backend/listening_sockets.h"
#include "core/base/owned_fd.h"
#include "core/base/torch_status.h"
#include "core/store/sockets.h"
#include "core/store/store.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

absl::StatusOr<GroupPtr> Join(const StorePtr& store, int rank, int size,
                              milliseconds timeout) {
  GroupPlace place;
  place.store = store;
  place.rank = rank;
  place.hosts.assign(static_cast<size_t>(size), "host");
  place.name = "group";
  place.job = store;
  CommunicatorOptions options;
  options.backend = "gloo";
  options.timeout = timeout;
  return MakeProcessGroup(place, options);
}

class PairProofTest : public ::testing::TestWithParam<int> {};

TEST_P(PairProofTest, ATrueGroupIsProvenAndWorks) {
  const int size = GetParam();
  const StorePtr store = NewHashStore(std::chrono::seconds(30));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto group = Join(store, rank, size, std::chrono::seconds(30));
      ASSERT_TRUE(group.ok()) << group.status();
      std::vector<at::Tensor> ones = {at::full({3}, 1.0f)};
      const absl::Status summed =
          CatchTorch([&] { (*group)->allreduce(ones)->wait(); });
      EXPECT_TRUE(summed.ok()) << summed;
      EXPECT_EQ(ones[0][2].item<float>(), static_cast<float>(size));
    });
  }
  for (std::thread& each : ranks) each.join();
}

INSTANTIATE_TEST_SUITE_P(Sizes, PairProofTest, ::testing::Values(1, 2, 7));

int PortOf(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

// Connections that say what peers say to Gloo, each another of the first
// numbers, and behind it `more`.
std::vector<OwnedFd> TakePlaces(int port, const std::string& more) {
  std::vector<OwnedFd> places;
  for (int64_t number = 0; number < 8; ++number) {
    places.push_back(
        ConnectWhenServed("127.0.0.1", port, std::chrono::seconds(30)).value());
    std::string text(reinterpret_cast<const char*>(&number), sizeof(number));
    text += more;
    EXPECT_EQ(send(places.back().get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  return places;
}

class StrangerTest : public ::testing::TestWithParam<std::string> {};

// Rank 0 listens, a stranger comes, and only then rank 1.
TEST_P(StrangerTest, WhoTakesAPlaceDoesNotJoin) {
  const StorePtr store = NewHashStore(std::chrono::seconds(30));
  absl::Status results[2];
  std::thread zero([&] {
    results[0] = Join(store, 0, 2, std::chrono::seconds(3)).status();
  });
  while (ListeningDescriptors().empty()) std::this_thread::yield();
  const auto places =
      TakePlaces(PortOf(*ListeningDescriptors().begin()), GetParam());
  results[1] = Join(store, 1, 2, std::chrono::seconds(3)).status();
  zero.join();
  // Who listens is decided by addresses: where it was rank 1, nobody was
  // disturbed.
  const bool undisturbed = results[0].ok() && results[1].ok();
  const bool found_out = !results[0].ok() && !results[1].ok();
  EXPECT_TRUE(undisturbed || found_out) << results[0] << results[1];
}

INSTANTIATE_TEST_SUITE_P(Says, StrangerTest,
                         ::testing::Values("", std::string(4096, '\0'),
                                           std::string(4096, '\xff')));

}  // namespace
}  // namespace tandem
