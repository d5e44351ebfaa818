// Ranks of one host that find each other while others knock.

#include "core/shm/memory/connect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/text_fields.h"
#include "core/shm/group.h"
#include "core/shm/memory/segment.h"
#include "core/shm/memory/shared_memory.h"
#include "core/store/gather.h"
#include "core/store/store.h"
#include "tests/core/testing/on_threads.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Longer than a test may take: nothing here ends by timeout.
constexpr milliseconds kPatient = std::chrono::minutes(10);
constexpr uid_t kNobody = 65534;

enum class Stranger { kSilent, kGarbage, kCloses, kLongGarbage };

// Only what may be done after a fork of a process with threads.
void Connect(const std::string& name, Stranger stranger) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  const socklen_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    _exit(1);
  }
  char garbage[4096];
  std::memset(garbage, 'x', sizeof(garbage));
  if (stranger == Stranger::kGarbage) send(fd, garbage, 7, MSG_NOSIGNAL);
  if (stranger == Stranger::kLongGarbage) {
    send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
  }
  if (stranger == Stranger::kCloses) close(fd);
}

// A process that has connected to `name` in each of these ways, and holds what
// it has.
pid_t ForkStrangers(const std::string& name, uid_t user,
                    const std::vector<Stranger>& strangers) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    // Without effect in a user namespace that has this user alone.
    if (setuid(user) != 0) user = geteuid();
    for (const Stranger each : strangers) Connect(name, each);
    if (write(ready[1], "r", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  close(ready[1]);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1) << "it could not connect";
  close(ready[0]);
  return child;
}

void End(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

class Rank {
 public:
  Rank(const StorePtr& store, int rank, int size, milliseconds timeout)
      : memory_(NewSharedMemory(4096).value()), thread_([=] {
          result_ = ConnectShm(store, rank, size, memory_.get(), timeout);
        }) {}
  const absl::StatusOr<ShmConnections>& Result() {
    if (thread_.joinable()) thread_.join();
    return result_;
  }
  ~Rank() { Result().status().IgnoreError(); }

 private:
  const OwnedFd memory_;
  absl::StatusOr<ShmConnections> result_;
  std::thread thread_;
};

// The name of the only rank that has come to the store.
std::string NameOfFirst(const StorePtr& store) {
  store->wait({"shm/list"}, kPatient);
  const std::string list = store->get_to_str("shm/list");
  absl::string_view rest = list;
  EXPECT_TRUE(TakeNumber(&rest).has_value());
  const std::string published(TakeField(&rest).value_or(""));
  return published.substr(0, published.find(' '));
}

// Rank 0 is knocked at before the others come.
void ExpectToConnectDespite(uid_t user) {
  const StorePtr store = NewHashStore(kPatient);
  Rank zero(store, 0, 3, kPatient);
  const pid_t strangers = ForkStrangers(
      NameOfFirst(store), user,
      {Stranger::kSilent, Stranger::kGarbage, Stranger::kLongGarbage,
       Stranger::kCloses, Stranger::kSilent});
  Rank one(store, 1, 3, kPatient);
  Rank two(store, 2, 3, kPatient);
  for (Rank* rank : {&zero, &one, &two}) {
    EXPECT_TRUE(rank->Result().ok()) << rank->Result().status();
  }
  End(strangers);
}

TEST(ShmConnectTest, StrangersOfThisUserAreDropped) {
  ExpectToConnectDespite(geteuid());
}

// Only root can become another user; else they are of the same one.
TEST(ShmConnectTest, StrangersOfAnotherUserAreDropped) {
  ExpectToConnectDespite(geteuid() == 0 ? kNobody : geteuid());
}

TEST(ShmConnectTest, TheNameIsNotEnough) {
  const StorePtr store = NewHashStore(kPatient);
  Rank zero(store, 0, 2, milliseconds(500));
  // A connection of a rank that knows the name but not the secret.
  const std::string name = NameOfFirst(store);
  const StorePtr wrong = NewHashStore(kPatient);
  GatherAtStore(*wrong, "shm", 0, 2, name + " " + std::string(32, '0'),
                milliseconds(1))
      .status()
      .IgnoreError();
  Rank one(wrong, 1, 2, kPatient);
  EXPECT_TRUE(absl::IsDeadlineExceeded(zero.Result().status()));
  EXPECT_TRUE(absl::IsUnavailable(one.Result().status()));
}

TEST(ShmConnectTest, WhoDoesNotComeIsNamed) {
  const StorePtr store = NewHashStore(kPatient);
  Rank zero(store, 0, 3, milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(zero.Result().status()));
  EXPECT_THAT(std::string(zero.Result().status().message()),
              HasSubstr("no connection from rank 1, 2"));
}

TEST(ShmConnectTest, OfManyWhoDoNotComeSomeAreNamed) {
  const StorePtr store = NewHashStore(kPatient);
  Rank zero(store, 0, 12, milliseconds(300));
  EXPECT_THAT(std::string(zero.Result().status().message()),
              HasSubstr("from rank 1, 2, 3, 4, 5, 6, 7, 8 and 3 more within"));
}

TEST(ShmConnectTest, GroupsOfOneProcessShareDescriptors) {
  const StorePtr first = NewHashStore(kPatient);
  const StorePtr second = NewHashStore(kPatient);
  const OwnedFd memory = NewSharedMemory(4096).value();
  std::vector<absl::StatusOr<ShmConnections>> made(4);
  OnThreads(4, [&](int i) {
    made[i] =
        ConnectShm(i < 2 ? first : second, i % 2, 2, memory.get(), kPatient);
  });
  for (const auto& each : made) ASSERT_TRUE(each.ok()) << each.status();
  EXPECT_EQ(made[0]->peers[1].arena->get(), made[2]->peers[1].arena->get());
  EXPECT_NE(made[0]->peers[1].socket.get(), made[2]->peers[1].socket.get());
}

// The state after `ulimit -n`.
TEST(ShmMonitorTest, WithoutDescriptorsThereIsAnError) {
  auto memory = ShmSegment::NewMemory(1);
  ASSERT_TRUE(memory.ok()) << memory.status();
  auto segment = ShmSegment::Map(*std::move(memory), 1);
  ASSERT_TRUE(segment.ok()) << segment.status();
  const std::vector<ShmPeer> peers(1);
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = dup(STDERR_FILENO);  // the lowest that is free
  close(next);
  rlimit limit = old;
  limit.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const absl::Status refused = ShmMonitor::Create(&*segment, &peers).status();
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("Too many open files"));
  EXPECT_TRUE(ShmMonitor::Create(&*segment, &peers).ok());
}

}  // namespace
}  // namespace tandem
