// What the others see when one rank's process dies or freezes. Ranks are real
// processes, forked before this one has touched LibTorch.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/communicator.h"
#include "core/status_macros.h"
#include "core/store.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(20);
constexpr std::chrono::milliseconds kShort(1500);
constexpr int kBoundSeconds = 40;

std::string TestFile(const std::string& suffix) {
  return absl::StrCat(
      ::testing::TempDir(), "/",
      ::testing::UnitTest::GetInstance()->current_test_info()->name(), suffix);
}

// A process that calls `fn`, leaves its status in a file, and ends: by the
// alarm when it hangs, by the kernel when the test ends.
class RankProcess {
 public:
  RankProcess(int rank, const std::function<absl::Status()>& fn)
      : result_(TestFile(absl::StrCat(".result-", rank))), pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(kBoundSeconds);
    std::ofstream(result_) << fn().ToString() << std::flush;
    _exit(0);
  }
  ~RankProcess() {
    kill(pid_, SIGKILL);
    int ignored;
    waitpid(pid_, &ignored, 0);
  }
  RankProcess(const RankProcess&) = delete;

  // What its function returned; empty when it did not return.
  std::string Result() {
    siginfo_t ignored;
    waitid(P_PID, pid_, &ignored, WEXITED | WNOWAIT);
    std::ostringstream text;
    text << std::ifstream(result_).rdbuf();
    return text.str();
  }

 private:
  std::string result_;
  pid_t pid_;
};

using Store = absl::StatusOr<StorePtr>;

// The world meets, then rank `victim` sends itself `signal`, and the others
// wait for it in an all-reduce of that timeout. Communicators are destroyed
// before the result is written: that must not hang either.
absl::Status MeetAndLose(Store store, int rank, int size, int victim,
                         int signal, std::chrono::milliseconds timeout) {
  TANDEM_RETURN_IF_ERROR(store.status());
  CommunicatorOptions options;
  options.timeout = kLong;
  TANDEM_RETURN_IF_ERROR(
      Communicator::Create(*store, rank, size, "meet", options)
          .value()
          ->Barrier());
  options.timeout = timeout;
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> world,
      Communicator::Create(*store, rank, size, "world", options));
  TANDEM_RETURN_IF_ERROR(world->Barrier());
  // One rank may leave the barrier while another is still inside.
  (*store)->set(absl::StrCat("left barrier/", rank), std::string("1"));
  if (rank == victim) {
    for (int r = 0; r < size; ++r) {
      (*store)->wait({absl::StrCat("left barrier/", r)});
    }
    raise(signal);
  }
  at::Tensor tensor = at::ones({997});
  return world->AllReduceSum(tensor);
}

TEST(BrokenPeerTest, AKilledRankIsUnavailableToTheOthers) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<RankProcess>(r, [&, r] {
      return MeetAndLose(OpenFileStore(path, r, 3, "", kLong), r, 3, 1, SIGKILL,
                         kLong);
    }));
  }
  for (const int r : {0, 2}) {
    EXPECT_THAT(ranks[r]->Result(),
                AllOf(StartsWith("UNAVAILABLE"),
                      HasSubstr(absl::StrCat("of group \"world\" on rank ", r,
                                             " of 3")),
                      ContainsRegex("not heard of: ranks? 1")));
  }
  EXPECT_EQ(ranks[1]->Result(), "");
}

TEST(BrokenPeerTest, AFrozenRankThatServesTheStoreTimesOut) {
  int port_pipe[2];
  ASSERT_EQ(pipe(port_pipe), 0);
  RankProcess server(0, [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(ServedStore served,
                            ServeTcpStore("127.0.0.1", 0, kLong));
    EXPECT_EQ(write(port_pipe[1], &served.port, sizeof(served.port)),
              ssize_t{sizeof(served.port)});
    return MeetAndLose(served.store, 0, 2, 0, SIGSTOP, kShort);
  });
  RankProcess client(1, [&]() -> absl::Status {
    int port = 0;
    EXPECT_EQ(read(port_pipe[0], &port, sizeof(port)), ssize_t{sizeof(port)});
    return MeetAndLose(ConnectTcpStore("127.0.0.1", port, kLong), 1, 2, 0,
                       SIGSTOP, kShort);
  });
  EXPECT_THAT(
      client.Result(),
      AllOf(StartsWith("DEADLINE_EXCEEDED"),
            HasSubstr("all-reduce #2 of group \"world\" on rank 1 of 2"),
            HasSubstr("timeout 1.5s")));
  close(port_pipe[0]);
  close(port_pipe[1]);
}

}  // namespace
}  // namespace tandem
