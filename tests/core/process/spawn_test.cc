#include "core/process/spawn.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/program/interrupt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Longer than this test may take.
void SleepLong() { std::this_thread::sleep_for(std::chrono::minutes(10)); }

std::string FileOf(int rank) {
  return absl::StrCat(::testing::TempDir(), "/spawn_", getppid(), "_", rank);
}

TEST(SpawnTest, EveryRankRunsOnceInAProcessOfItsOwn) {
  const pid_t parent = getpid();
  for (const int nprocs : {0, 1, 2, 7}) {
    const absl::Status status = Spawn(
        [parent](int rank) {
          std::ofstream(FileOf(rank), std::ios::app)
              << (getpid() != parent && getppid() == parent);
          return absl::OkStatus();
        },
        nprocs);
    EXPECT_TRUE(status.ok()) << status;
    for (int rank = 0; rank < 8; ++rank) {
      const std::string path =
          absl::StrCat(::testing::TempDir(), "/spawn_", parent, "_", rank);
      std::string text;
      std::ifstream(path) >> text;
      EXPECT_EQ(text, rank < nprocs ? "1" : "") << rank << " of " << nprocs;
      unlink(path.c_str());
    }
  }
}

TEST(SpawnTest, ARanksStatusIsReturnedWithItsRank) {
  const std::string long_message(100000, 'x');  // more than a pipe holds
  const absl::Status status = Spawn(
      [&](int rank) -> absl::Status {
        if (rank == 1) return absl::NotFoundError(long_message);
        SleepLong();
        return absl::OkStatus();
      },
      3);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "rank 1: " + long_message);
}

TEST(SpawnTest, AnExceptionIsAFailure) {
  const absl::Status status = Spawn(
      [](int rank) -> absl::Status {
        if (rank == 0) throw std::runtime_error("no luck");
        SleepLong();
        return absl::OkStatus();
      },
      2);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank 0"), HasSubstr("no luck")));
}

TEST(SpawnTest, AKilledRankEndsTheOthers) {
  const absl::Status status = Spawn(
      [](int rank) -> absl::Status {
        if (rank == 2) raise(SIGKILL);
        SleepLong();
        return absl::OkStatus();
      },
      3);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank 2"), HasSubstr("killed by signal 9")));
}

TEST(SpawnTest, AnEarlyExitIsAFailureWhateverItsCode) {
  for (const int code : {0, 3}) {
    const absl::Status status = Spawn(
        [code](int rank) -> absl::Status {
          if (rank == 0) _exit(code);
          SleepLong();
          return absl::OkStatus();
        },
        2);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("rank 0"),
                      HasSubstr(absl::StrCat("exit code ", code))));
  }
}

TEST(SpawnTest, TheTimeoutNamesWhoStillRuns) {
  SpawnOptions options;
  options.timeout = milliseconds(2000);  // in which rank 1 has ended
  options.grace = milliseconds(100);
  const absl::Status status = Spawn(
      [](int rank) {
        std::signal(SIGTERM, SIG_IGN);  // it takes SIGKILL to end these
        if (rank != 1) SleepLong();
        return absl::OkStatus();
      },
      3, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("2000 ms"), HasSubstr("0, 2")));
}

TEST(SpawnTest, RefusesAProcessWithThreads) {
  std::promise<void> end;
  std::thread other([&end] { end.get_future().wait(); });
  const absl::Status status = Spawn([](int) { return absl::OkStatus(); }, 1);
  end.set_value();
  other.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("2 threads"));
}

// In a process of its own, for the signal thread stays.
TEST(SpawnTest, TheSignalThreadIsNoneThatRanksLack) {
  const pid_t child = fork();
  if (child == 0) {
    HandleInterrupts();
    const absl::Status status = Spawn(
        [](int) {
          kill(getpid(), SIGTERM);  // which no rank has blocked
          return InterruptSignal() == SIGTERM
                     ? absl::OkStatus()
                     : absl::InternalError("not handled");
        },
        2);
    _exit(status.ok() ? 0 : 1);
  }
  int end = 0;
  ASSERT_EQ(waitpid(child, &end, 0), child);
  EXPECT_EQ(end, 0);
}

TEST(SpawnTest, RefusesAProcessWithOtherThreadsThanTheSignalThread) {
  const pid_t child = fork();
  if (child == 0) {
    HandleInterrupts();
    std::thread(SleepLong).detach();
    const absl::Status status = Spawn([](int) { return absl::OkStatus(); }, 1);
    _exit(status.code() == absl::StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int end = 0;
  ASSERT_EQ(waitpid(child, &end, 0), child);
  EXPECT_EQ(end, 0);
}

TEST(SpawnTest, RefusesANegativeCount) {
  EXPECT_EQ(Spawn([](int) { return absl::OkStatus(); }, -1).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SpawnTest, EndsWhereSigchldIsIgnoredToo) {
  std::signal(SIGCHLD, SIG_IGN);
  EXPECT_TRUE(Spawn([](int) { return absl::OkStatus(); }, 2).ok());
  const absl::Status dead = Spawn(
      [](int rank) {
        if (rank == 1) _exit(3);
        return absl::OkStatus();
      },
      2);
  EXPECT_EQ(dead.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(dead.message(), HasSubstr("rank 1"));
  std::signal(SIGCHLD, SIG_DFL);
}

TEST(SpawnTest, RanksGoWithTheirParent) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    close(fds[0]);
    Spawn(
        [&](int) {
          std::signal(SIGTERM, SIG_IGN);
          if (write(fds[1], "x", 1) != 1) _exit(1);
          SleepLong();
          return absl::OkStatus();
        },
        2)
        .IgnoreError();
    _exit(0);
  }
  close(fds[1]);
  char bytes[2];
  ASSERT_EQ(read(fds[0], bytes, 1), 1);
  ASSERT_EQ(read(fds[0], bytes, 1), 1);
  kill(parent, SIGKILL);
  // The pipe ends when the last rank that could write to it has ended.
  EXPECT_EQ(read(fds[0], bytes, 1), 0);
  close(fds[0]);
}

}  // namespace
}  // namespace tandem
