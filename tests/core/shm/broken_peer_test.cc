// What only the shared-memory backend promises when a rank's process dies or
// gives up. tests/core/comm/broken_peer_test.cc has what it shares with Gloo.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/shm/backend.h"
#include "core/store/store.h"
#include "tests/core/testing/forked_rank.h"
#include "tests/core/testing/test_files.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(20);
constexpr std::chrono::milliseconds kShort = std::chrono::seconds(2);

CommunicatorOptions WithTimeout(std::chrono::milliseconds timeout) {
  CommunicatorOptions options;
  options.timeout = timeout;
  options.backend = "shm";
  return options;
}

using Clock = std::chrono::steady_clock;  // the same in all processes

void NoteTime(const std::string& suffix) {
  std::ofstream(TestFile(suffix))
      << Clock::now().time_since_epoch().count() << std::flush;
}

// All-reduces tensors until it fails. The victim kills itself with one issued,
// which its own worker may be in the middle of.
absl::Status ReduceUntilItFails(c10d::Backend& backend, int64_t numel,
                                int victim) {
  std::vector<at::Tensor> tensors = {backend.allocateTensor(numel)};
  for (int i = 0;; ++i) {
    const auto work = backend.allreduce(tensors);
    if (backend.getRank() == victim && i == 20) {
      NoteTime(".death");
      raise(SIGKILL);
    }
    const absl::Status status = CatchTorch([&] { work->wait(); });
    if (!status.ok()) {
      NoteTime(absl::StrCat(".failure-", backend.getRank()));
      return status;
    }
  }
}

// Rank 1 kills or freezes itself in the middle of a message, of which no more
// than a ring holds has been written; rank 0 reads it. What rank 0 says.
std::string ReadFromASenderThat(int signal, std::chrono::milliseconds timeout) {
  const std::string path = TestFile(absl::StrCat(".store", signal));
  const std::string sent = absl::StrCat("sent/", signal);
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.push_back(std::make_unique<ForkedRank>(r, [&, r]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                              OpenFileStore(path, r, 2, "", kLong));
      TANDEM_ASSIGN_OR_RETURN(auto backend,
                              ShmBackend::Create(store, r, 2, timeout));
      std::vector<at::Tensor> tensors = {at::ones({64 << 20}, at::kByte)};
      if (r == 1) {
        const auto work = backend->send(tensors, 0, 0);
        store->set(sent, std::string("1"));
        raise(signal);
      }
      store->wait({sent});
      const auto work = backend->recv(tensors, 1, 0);
      return CatchTorch([&] { work->wait(); });
    }));
  }
  return ranks[0]->Result();
}

TEST(ShmBrokenPeerTest, WhoeverReadsAMessageNamesItsSenderThatIsGone) {
  EXPECT_THAT(ReadFromASenderThat(SIGKILL, kLong),
              AllOf(StartsWith("UNAVAILABLE"),
                    ContainsRegex("rank 1 .pid [0-9]+. died")));
  EXPECT_THAT(ReadFromASenderThat(SIGSTOP, kShort),
              AllOf(StartsWith("DEADLINE_EXCEEDED"),
                    ContainsRegex("waiting for rank 1 .pid [0-9]+.")));
}

// The names of local sockets that exist on this machine.
std::string LocalSockets() { return ReadBytes("/proc/net/unix"); }

TEST(ShmBrokenPeerTest, WhoeverWaitsForAKilledRankNamesItBeforeTheTimeout) {
  // Through slots, in place on the thread that waits, and in the background.
  for (const int64_t numel : {997, 40009, 3000017}) {
    const std::string path = TestFile(absl::StrCat(".store", numel));
    std::vector<std::unique_ptr<ForkedRank>> ranks;
    for (int r = 0; r < 3; ++r) {
      ranks.push_back(std::make_unique<ForkedRank>(r, [&, r]() -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                                OpenFileStore(path, r, 3, "", kLong));
        TANDEM_ASSIGN_OR_RETURN(auto backend,
                                ShmBackend::Create(store, r, 3, kLong));
        return ReduceUntilItFails(*backend, numel, 1);
      }));
    }
    for (const int r : {0, 2}) {
      EXPECT_THAT(ranks[r]->Result(),
                  AllOf(StartsWith("UNAVAILABLE"),
                        ContainsRegex("rank 1 .pid [0-9]+. died")));
      const int64_t death = std::stoll(ReadBytes(TestFile(".death")));
      const int64_t failure =
          std::stoll(ReadBytes(TestFile(absl::StrCat(".failure-", r))));
      EXPECT_LT(failure - death, Clock::duration(kLong / 2).count());
    }
    ranks.clear();
  }
}

TEST(ShmBrokenPeerTest, NoNameIsLeftWhenAllAreKilled) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  for (int r = 0; r < 2; ++r) {
    ranks.push_back(std::make_unique<ForkedRank>(r, [&, r]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                              OpenFileStore(path, r, 2, "", kLong));
      TANDEM_ASSIGN_OR_RETURN(
          std::unique_ptr<Communicator> world,
          Communicator::Create(store, r, 2, "world", WithTimeout(kLong)));
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor buffer,
                              NewGroupBuffer(*world, 997, at::kFloat));
      TANDEM_RETURN_IF_ERROR(world->AllReduceSum(buffer));
      const std::string list = store->get_to_str("world/shm/list");
      // Rank 0's, to which the other connected.
      absl::string_view rest = list;
      while (TakeNumber(&rest).value_or(0) != 0) TakeField(&rest);
      const std::string name(TakeField(&rest).value_or("").substr(0, 39));
      EXPECT_EQ(write(ready[1], name.data(), name.size()),
                static_cast<ssize_t>(name.size()));
      pause();
      return absl::OkStatus();
    }));
  }
  std::string name(39, ' ');
  ASSERT_EQ(read(ready[0], name.data(), name.size()), 39);
  EXPECT_THAT(name, StartsWith("tandem-"));
  EXPECT_THAT(LocalSockets(), HasSubstr(name));
  ranks.clear();  // kills them
  EXPECT_THAT(LocalSockets(), Not(HasSubstr(name)));
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("tandem")));
  }
  close(ready[0]);
  close(ready[1]);
}

TEST(ShmBrokenPeerTest, ARankThatGivesUpIsHeardByOtherProcesses) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  int gone[2];
  ASSERT_EQ(pipe(gone), 0);
  for (int r = 0; r < 2; ++r) {
    ranks.push_back(std::make_unique<ForkedRank>(r, [&, r]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                              OpenFileStore(path, r, 2, "", kLong));
      TANDEM_ASSIGN_OR_RETURN(
          std::unique_ptr<Communicator> world,
          Communicator::Create(store, r, 2, "world", WithTimeout(kShort)));
      // Rank 0 waits in vain, and its peer then learns why it is gone.
      if (r == 0) return world->Barrier();
      char byte = 0;
      EXPECT_EQ(read(gone[0], &byte, 1), 1);
      return world->Barrier();
    }));
  }
  EXPECT_THAT(ranks[0]->Result(),
              HasSubstr("timed out waiting for rank 1 (pid "));
  ASSERT_EQ(write(gone[1], "", 1), 1);
  EXPECT_THAT(ranks[1]->Result(),
              HasSubstr("rank 0 gave up: timed out waiting for rank 1 (pid "));
  close(gone[0]);
  close(gone[1]);
}

}  // namespace
}  // namespace tandem
