// A rank that goes while a transfer over Gloo is half done. Ranks are real
// processes, forked before this one has touched LibTorch, which stop
// themselves, so that it is known how far they are.

#include "core/backend/breakable_works.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "core/backend/host_works.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/store/store.h"
#include "tests/core/testing/forked_rank.h"
#include "tests/core/testing/listening_sockets.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr seconds kTimeout(30);
// What is neither a timeout nor a moment.
constexpr seconds kSoon(10);
// More than sockets hold.
constexpr int64_t kBytes = int64_t{64} << 20;

at::Tensor Large() { return at::zeros({kBytes}, at::kByte); }

// Ranks in a group over Gloo.
absl::StatusOr<std::unique_ptr<Communicator>> Meet(int rank, int size = 2) {
  TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                          OpenFileStore(TestFile(".store"), rank, size, "",
                                        milliseconds(kTimeout)));
  CommunicatorOptions options;
  options.timeout = kTimeout;
  options.backend = "gloo";
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> world,
      Communicator::Create(store, rank, size, "world", options));
  TANDEM_RETURN_IF_ERROR(world->Barrier());
  return world;
}

// The other rank has been told of what was started before by then.
void LetItBeTold() { std::this_thread::sleep_for(milliseconds(300)); }

void StopHere() {
  LetItBeTold();
  raise(SIGSTOP);
}

// What `wait` returns, if that is soon.
absl::Status Soon(const std::function<absl::Status()>& wait) {
  const Clock::time_point begin = Clock::now();
  absl::Status status = wait();
  if (Clock::now() - begin < kSoon) return status;
  return absl::InternalError(absl::StrCat("late: ", status.ToString()));
}

absl::Status StartBroadcast(Communicator& world, at::Tensor tensor,
                            c10::intrusive_ptr<c10d::Work>* work) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = 0;
  return CatchTorch([&] {
    absl::MutexLock lock(&IssueMutex());
    *work = world.process_group()->broadcast(tensors, options);
  });
}

bool IsStopped(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/stat")), stat);
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end + 2, 1) == "T";
}

// Bytes of a process's connections: those that peers have not taken, and those
// that it has not read.
struct Queues {
  int64_t sent = 0;
  int64_t received = 0;
};

Queues QueuesOf(pid_t pid) {
  const std::set<std::string> own = SocketsOf(std::to_string(pid));
  Queues queues;
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> row =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    // 0A: it listens, and has a queue of connections.
    if (row.size() < 10 || row[3] == "0A" || own.count(row[9]) == 0) continue;
    queues.sent += std::stoll(row[4].substr(0, 8), nullptr, 16);
    queues.received += std::stoll(row[4].substr(9), nullptr, 16);
  }
  return queues;
}

// Some seconds at most: who goes on too early shows less, but nothing wrong.
void AwaitForAWhile(const std::function<bool()>& condition) {
  const Clock::time_point deadline = Clock::now() + seconds(5);
  while (!condition() && Clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(50));
  }
}

// Waits until the process has filled what the sockets hold.
void AwaitFull(pid_t pid) {
  int64_t before = 0;
  AwaitForAWhile([&] {
    const int64_t now = QueuesOf(pid).sent;
    return std::exchange(before, now) == now && now > 0;
  });
}

// What Await waits for.
void Touch(const std::string& path) { std::ofstream(path) << "go"; }

void Await(const std::string& path) {
  while (!std::ifstream(path)) std::this_thread::sleep_for(milliseconds(1));
}

// `victim` stops once it has told that it is ready to receive; then `survivor`
// begins, and fills what the sockets hold; then the victim is killed.
std::string LoseTheReceiver(
    const std::function<absl::Status(Communicator&)>& survivor,
    const std::function<absl::Status(Communicator&)>& victim) {
  const std::string go = TestFile(".go");
  ForkedRank sender(0, [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto world, Meet(0));
    Await(go);
    return survivor(*world);
  });
  ForkedRank receiver(1, [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto world, Meet(1));
    return victim(*world);
  });
  EXPECT_TRUE(Eventually([&] { return IsStopped(receiver.pid()); }));
  Touch(go);
  AwaitFull(sender.pid());
  kill(receiver.pid(), SIGKILL);
  return sender.Result();
}

TEST(BreakableWorksTest, AMessageHalfSentEndsWithItsReceiver) {
  EXPECT_THAT(LoseTheReceiver(
                  [](Communicator& world) -> absl::Status {
                    TANDEM_ASSIGN_OR_RETURN(auto send,
                                            world.StartSend(Large(), 1, 0));
                    return Soon([&] { return send.Wait(); });
                  },
                  [](Communicator& world) -> absl::Status {
                    TANDEM_ASSIGN_OR_RETURN(auto receive,
                                            world.StartReceive(Large(), 0, 0));
                    StopHere();
                    return receive.Wait();
                  }),
              StartsWith("UNAVAILABLE"));
}

TEST(BreakableWorksTest, ACollectiveHalfSentEndsWithItsReceiver) {
  const auto broadcast = [](Communicator& world, bool stop) {
    c10::intrusive_ptr<c10d::Work> work;
    TANDEM_RETURN_IF_ERROR(StartBroadcast(world, Large(), &work));
    if (stop) StopHere();
    return Soon([&] { return CatchTorch([&] { work->wait(); }); });
  };
  EXPECT_THAT(LoseTheReceiver(
                  [&](Communicator& world) { return broadcast(world, false); },
                  [&](Communicator& world) { return broadcast(world, true); }),
              StartsWith("UNAVAILABLE"));
}

using Start =
    std::function<c10::intrusive_ptr<c10d::Work>(c10d::ProcessGroup& group)>;

std::string LoseAPeerOf(const Start& start) {
  const auto take_part = [&](Communicator& world, bool stop) -> absl::Status {
    c10::intrusive_ptr<c10d::Work> work;
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
      absl::MutexLock lock(&IssueMutex());
      work = start(*world.process_group());
    }));
    if (stop) StopHere();
    return Soon([&] { return CatchTorch([&] { work->wait(); }); });
  };
  return LoseTheReceiver(
      [&](Communicator& world) { return take_part(world, false); },
      [&](Communicator& world) { return take_part(world, true); });
}

// ProvePairs makes one in each group.
TEST(BreakableWorksTest, AnExchangeOfAllWithAllEndsWithAPeer) {
  EXPECT_THAT(LoseAPeerOf([](c10d::ProcessGroup& group) {
                at::Tensor output = Large();
                at::Tensor input = Large();
                std::vector<int64_t> equal;
                return group.all_to_all_single(output, input, equal, equal);
              }),
              StartsWith("UNAVAILABLE"));
}

// LibTorch makes it of others.
TEST(BreakableWorksTest, AReduceScatterEndsWithAPeer) {
  EXPECT_THAT(LoseAPeerOf([](c10d::ProcessGroup& group) {
                at::Tensor output = Large();
                at::Tensor input = at::zeros({2 * kBytes}, at::kByte);
                return group.reduce_scatter_single(output, input);
              }),
              StartsWith("UNAVAILABLE"));
}

TEST(BreakableWorksTest, AMessageHalfReceivedEndsWithItsSender) {
  const std::string go = TestFile(".go");
  // Stops, so that it takes nothing while the sockets are filled.
  ForkedRank receiver(0, []() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto world, Meet(0));
    TANDEM_ASSIGN_OR_RETURN(auto receive, world->StartReceive(Large(), 1, 0));
    StopHere();
    return Soon([&] { return receive.Wait(); });
  });
  ForkedRank sender(1, [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto world, Meet(1));
    Await(go);
    TANDEM_ASSIGN_OR_RETURN(auto send, world->StartSend(Large(), 0, 0));
    AwaitFull(getpid());
    raise(SIGSTOP);
    return send.Wait();
  });
  ASSERT_TRUE(Eventually([&] { return IsStopped(receiver.pid()); }));
  Touch(go);
  ASSERT_TRUE(Eventually([&] { return IsStopped(sender.pid()); }));
  kill(receiver.pid(), SIGCONT);
  AwaitForAWhile([&] {
    return QueuesOf(sender.pid()).sent == 0 &&
           QueuesOf(receiver.pid()).received == 0;
  });
  kill(sender.pid(), SIGKILL);
  EXPECT_THAT(receiver.Result(), StartsWith("UNAVAILABLE"));
}

// Rank 1 has done its part and goes; what the others do takes longer than a
// break would need to be seen.
std::vector<std::string> LeaveEarly(
    const std::function<absl::Status(Communicator&)>& first,
    const std::function<absl::Status(Communicator&)>& last) {
  const auto rank = [](int number,
                       const std::function<absl::Status(Communicator&)>& part) {
    return std::make_unique<ForkedRank>(number, [=]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(auto world, Meet(number, 3));
      return part(*world);
    });
  };
  const std::unique_ptr<ForkedRank> ranks[] = {
      rank(0, first), rank(1, [](Communicator&) { return absl::OkStatus(); }),
      rank(2, [&](Communicator& world) {
        std::this_thread::sleep_for(seconds(4));
        return last(world);
      })};
  std::vector<std::string> results;
  for (const auto& each : ranks) results.push_back(each->Result());
  return results;
}

TEST(BreakableWorksTest, AMessageOutlastsAnotherRankThatLeaves) {
  EXPECT_THAT(LeaveEarly(
                  [](Communicator& world) -> absl::Status {
                    TANDEM_ASSIGN_OR_RETURN(auto receive,
                                            world.StartReceive(Large(), 2, 0));
                    return receive.Wait();
                  },
                  [](Communicator& world) -> absl::Status {
                    TANDEM_ASSIGN_OR_RETURN(auto send,
                                            world.StartSend(Large(), 0, 0));
                    return send.Wait();
                  }),
              Each("OK"));
}

}  // namespace
}  // namespace tandem
