#include "core/program/interrupt.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/process/signal_thread.h"
#include "gtest/gtest.h"
#include "tests/core/testing/forked_rank.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// One process tells another something; for both sides of a fork.
class Line {
 public:
  Line() { EXPECT_EQ(pipe(fds_), 0); }
  ~Line() {
    close(fds_[0]);
    close(fds_[1]);
  }

  void Tell() const {
    if (write(fds_[1], "x", 1) != 1) _exit(99);
  }
  // Each word once; false: none came within `patience`.
  bool Hears(milliseconds patience = std::chrono::seconds(30)) const {
    pollfd ready = {fds_[0], POLLIN, 0};
    char word = 0;
    return poll(&ready, 1, static_cast<int>(patience.count())) == 1 &&
           read(fds_[0], &word, 1) == 1;
  }

 private:
  int fds_[2];
};

void Send(int signal_number) { kill(getpid(), signal_number); }

void AwaitWish() {
  while (InterruptSignal() == 0) std::this_thread::sleep_for(milliseconds(1));
}

// Long enough for a signal that was sent to be handled.
void WaitABit() { std::this_thread::sleep_for(milliseconds(100)); }

TEST(InterruptTest, FirstSignalIsAWishAndALaterOneEndsTheProcess) {
  const int status = StatusOfChild([] {
    HandleInterrupts();
    if (InterruptSignal() != 0) _exit(1);
    Send(SIGINT);
    AwaitWish();
    if (InterruptSignal() != SIGINT) _exit(2);
    std::this_thread::sleep_for(kSignalEcho);
    Send(SIGINT);
    std::this_thread::sleep_for(std::chrono::minutes(1));
  });
  ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

// Timeout, systemd and a launcher that passes signals on do so together.
TEST(InterruptTest, WhatComesSoonAfterTheFirstIsItsEcho) {
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const int status = StatusOfChild([] {
      HandleInterrupts();
      for (int times = 0; times < 5; ++times) {
        for (const int each : {SIGTERM, SIGHUP, SIGINT, SIGUSR1}) Send(each);
        WaitABit();
      }
    });
    if (status == 0) return;
    // Where the machine is busy the last may have come too late for an echo.
    ASSERT_TRUE(std::chrono::steady_clock::now() - start >= kSignalEcho)
        << "wait status " << status;
  }
  FAIL() << "half a second took more than two, ten times";
}

// After Slurm's USR1 comes TERM, when the time is over: what is being saved
// then has until KILL.
TEST(InterruptTest, AnotherSignalIsNoSecondOne) {
  const Line line;
  const int status = StatusOfChild([&line] {
    HandleInterrupts();
    Send(SIGUSR1);
    AwaitWish();
    std::this_thread::sleep_for(kSignalEcho);
    Send(SIGTERM);
    std::this_thread::sleep_for(kSignalEcho);
    if (InterruptSignal() != SIGUSR1) _exit(1);
    line.Tell();
    // A later SIGTERM ends this, which shows that the first was handled.
    for (int i = 0; i < 300; ++i) {
      Send(SIGTERM);
      WaitABit();
    }
    _exit(2);
  });
  EXPECT_TRUE(line.Hears(milliseconds(0))) << "the first SIGTERM ended it";
  ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

// A rank that says when it can be signalled, when it was, and, told that it was
// again, lives on.
void RunSignalledRank(const Line& up, const Line& down) {
  HandleInterrupts();
  up.Tell();
  AwaitWish();
  up.Tell();
  if (!down.Hears()) _exit(1);
  WaitABit();
  _exit(128 + InterruptSignal());
}

TEST(InterruptTest, ALauncherThatRepeatsASignalEndsNobody) {
  const int status = StatusOfChild([] {
    setenv("TANDEM_LAUNCHER", "1", 1);
    const Line up;
    const Line down;
    const pid_t rank = fork();
    if (rank < 0) _exit(2);
    if (rank == 0) RunSignalledRank(up, down);
    if (!up.Hears()) _exit(3);
    kill(rank, SIGTERM);
    if (!up.Hears()) _exit(4);
    std::this_thread::sleep_for(kSignalEcho);
    for (int i = 0; i < 5; ++i) {
      kill(rank, SIGTERM);
      std::this_thread::sleep_for(milliseconds(20));
    }
    down.Tell();
    int end = 0;
    waitpid(rank, &end, 0);
    _exit(WIFEXITED(end) && WEXITSTATUS(end) == 128 + SIGTERM ? 0 : 1);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// By "docker kill -s TERM", say: who sends it has no number in the container,
// 0, and no launcher is 0 as well.
TEST(InterruptTest, Process1OfAContainerIsEndedByASecondOneFromOutside) {
  const int status = StatusOfChild([] {
    unsetenv("TANDEM_LAUNCHER");
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(77);
    const Line up;
    const Line down;
    const pid_t first = fork();
    if (first < 0) _exit(77);
    if (first == 0) {
      if (getpid() != 1) _exit(5);
      RunSignalledRank(up, down);
    }
    if (!up.Hears()) _exit(3);
    kill(first, SIGTERM);
    if (!up.Hears()) _exit(4);
    std::this_thread::sleep_for(kSignalEcho);
    kill(first, SIGTERM);
    // It must end while nobody has told it to go on.
    int end = 0;
    for (int i = 0; i < 100 && waitpid(first, &end, WNOHANG) == 0; ++i) {
      WaitABit();
    }
    down.Tell();
    _exit(WIFEXITED(end) ? WEXITSTATUS(end) : 2);
  });
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

TEST(InterruptTest, OneThatWasIgnoredStaysIgnored) {
  const int status = StatusOfChild([] {
    signal(SIGHUP, SIG_IGN);
    HandleInterrupts();
    Send(SIGHUP);
    WaitABit();
    if (InterruptSignal() != 0) _exit(1);
    Send(SIGTERM);
    AwaitWish();
    _exit(InterruptSignal() == SIGTERM ? 0 : 2);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(InterruptTest, WhatRanksHaveAgreedOnIsEachOnes) {
  const int status = StatusOfChild([] {
    HandleInterrupts();
    AdoptInterrupt(SIGTERM);
    if (InterruptSignal() != SIGTERM) _exit(1);
    AdoptInterrupt(SIGINT);
    if (InterruptSignal() != SIGINT) _exit(2);
    // What comes later changes it no more.
    Send(SIGUSR1);
    WaitABit();
    _exit(InterruptSignal() == SIGINT ? 0 : 3);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tandem
