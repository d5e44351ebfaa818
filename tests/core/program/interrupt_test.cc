#include "core/program/interrupt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "core/process/signal_thread.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// In a process of its own: the wish to stop stays.
int StatusOfChild(const std::function<void()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    run();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

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

// As timeout, systemd and a launcher that passes signals on do together.
TEST(InterruptTest, WhatComesSoonAfterTheFirstIsItsEcho) {
  const int status = StatusOfChild([] {
    HandleInterrupts();
    for (int i = 0; i < 5; ++i) {
      for (const int each : {SIGTERM, SIGHUP, SIGINT, SIGUSR1}) Send(each);
      WaitABit();
    }
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// After Slurm's USR1 comes TERM, when the time is over: what is being saved
// then has until KILL.
TEST(InterruptTest, AnotherSignalIsNoSecondOne) {
  const int status = StatusOfChild([] {
    HandleInterrupts();
    Send(SIGUSR1);
    AwaitWish();
    std::this_thread::sleep_for(kSignalEcho);
    Send(SIGTERM);
    WaitABit();
    _exit(InterruptSignal() == SIGUSR1 ? 0 : 1);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(InterruptTest, ALauncherThatRepeatsASignalEndsNobody) {
  const int status = StatusOfChild([] {
    setenv("TANDEM_LAUNCHER", "1", 1);
    const pid_t rank = fork();
    if (rank == 0) {
      HandleInterrupts();
      AwaitWish();
      std::this_thread::sleep_for(2 * kSignalEcho);
      _exit(128 + InterruptSignal());
    }
    WaitABit();
    kill(rank, SIGTERM);
    std::this_thread::sleep_for(kSignalEcho + milliseconds(100));
    kill(rank, SIGTERM);
    int end = 0;
    waitpid(rank, &end, 0);
    _exit(WIFEXITED(end) && WEXITSTATUS(end) == 128 + SIGTERM ? 0 : 1);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
