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

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/communicator.h"
#include "core/shm_backend.h"
#include "core/status_macros.h"
#include "core/store.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(20);
constexpr std::chrono::milliseconds kShort(1500);
constexpr int kBoundSeconds = 40;

std::string TestFile(const std::string& suffix) {
  std::string test =
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(test.begin(), test.end(), '/', '-');
  return absl::StrCat(::testing::TempDir(), "/", test, suffix);
}

class BrokenPeerTest : public ::testing::TestWithParam<std::string> {
 protected:
  static CommunicatorOptions WithTimeout(std::chrono::milliseconds timeout) {
    CommunicatorOptions options;
    options.timeout = timeout;
    options.backend = GetParam();
    return options;
  }
};
class ShmTest : public BrokenPeerTest {};

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Backends, BrokenPeerTest,
                         ::testing::Values("shm", "gloo"), &NameOf);
INSTANTIATE_TEST_SUITE_P(Backends, ShmTest, ::testing::Values("shm"), &NameOf);

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
                         int signal, CommunicatorOptions options) {
  TANDEM_RETURN_IF_ERROR(store.status());
  const std::chrono::milliseconds timeout = options.timeout;
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

TEST_P(BrokenPeerTest, AKilledRankIsUnavailableToTheOthers) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(std::make_unique<RankProcess>(r, [&, r] {
      return MeetAndLose(OpenFileStore(path, r, 3, "", kLong), r, 3, 1, SIGKILL,
                         WithTimeout(kLong));
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

TEST_P(BrokenPeerTest, AFrozenRankThatServesTheStoreTimesOut) {
  int port_pipe[2];
  ASSERT_EQ(pipe(port_pipe), 0);
  RankProcess server(0, [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(ServedStore served,
                            ServeTcpStore("127.0.0.1", 0, kLong));
    EXPECT_EQ(write(port_pipe[1], &served.port, sizeof(served.port)),
              ssize_t{sizeof(served.port)});
    return MeetAndLose(served.store, 0, 2, 0, SIGSTOP, WithTimeout(kShort));
  });
  RankProcess client(1, [&]() -> absl::Status {
    int port = 0;
    EXPECT_EQ(read(port_pipe[0], &port, sizeof(port)), ssize_t{sizeof(port)});
    return MeetAndLose(ConnectTcpStore("127.0.0.1", port, kLong), 1, 2, 0,
                       SIGSTOP, WithTimeout(kShort));
  });
  EXPECT_THAT(
      client.Result(),
      AllOf(StartsWith("DEADLINE_EXCEEDED"),
            HasSubstr("all-reduce #2 of group \"world\" on rank 1 of 2"),
            HasSubstr("timeout 1.5s"),
            HasSubstr(GetParam() == "shm" ? "timed out waiting for rank 0 (pid "
                                          : "imed out")));
  close(port_pipe[0]);
  close(port_pipe[1]);
}

using Clock = std::chrono::steady_clock;  // the same in all processes

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

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

// The names of local sockets that exist on this machine.
std::string LocalSockets() { return ReadFile("/proc/net/unix"); }

TEST_P(ShmTest, WhoeverWaitsForAKilledRankNamesItWithinASecond) {
  // Through slots, in place on the thread that waits, and in the background.
  for (const int64_t numel : {997, 40009, 3000017}) {
    const std::string path = TestFile(absl::StrCat(".store", numel));
    std::vector<std::unique_ptr<RankProcess>> ranks;
    for (int r = 0; r < 3; ++r) {
      ranks.push_back(
          std::make_unique<RankProcess>(r, [&, r]() -> absl::Status {
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
      const int64_t death = std::stoll(ReadFile(TestFile(".death")));
      const int64_t failure =
          std::stoll(ReadFile(TestFile(absl::StrCat(".failure-", r))));
      EXPECT_LT(failure - death,
                Clock::duration(std::chrono::seconds(1)).count());
    }
    ranks.clear();
  }
}

TEST_P(ShmTest, NoNameIsLeftWhenAllAreKilled) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<RankProcess>> ranks;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  for (int r = 0; r < 2; ++r) {
    ranks.push_back(std::make_unique<RankProcess>(r, [&, r]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                              OpenFileStore(path, r, 2, "", kLong));
      TANDEM_ASSIGN_OR_RETURN(
          std::unique_ptr<Communicator> world,
          Communicator::Create(store, r, 2, "world", WithTimeout(kLong)));
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor buffer,
                              world->NewBuffer(997, at::kFloat));
      TANDEM_RETURN_IF_ERROR(world->AllReduceSum(buffer));
      const std::string name = store->get_to_str("world/shm/0");
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

TEST_P(ShmTest, ARankThatGivesUpIsHeardByOtherProcesses) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.push_back(std::make_unique<RankProcess>(r, [&, r]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                              OpenFileStore(path, r, 2, "", kLong));
      TANDEM_ASSIGN_OR_RETURN(
          std::unique_ptr<Communicator> world,
          Communicator::Create(store, r, 2, "world", WithTimeout(kShort)));
      // Rank 0 waits in vain, and its peer then learns why it is gone.
      if (r == 0) return world->Barrier();
      std::this_thread::sleep_for(kShort * 2);
      return world->Barrier();
    }));
  }
  EXPECT_THAT(ranks[0]->Result(),
              HasSubstr("timed out waiting for rank 1 (pid "));
  EXPECT_THAT(ranks[1]->Result(),
              HasSubstr("rank 0 gave up: timed out waiting for rank 1 (pid "));
}

}  // namespace
}  // namespace tandem
