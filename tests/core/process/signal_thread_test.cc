#include "core/process/signal_thread.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "core/process/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/forked_rank.h"

namespace tandem {
namespace {

std::atomic<int> handled{0};
std::atomic<int> on_another_thread{0};
std::atomic<pid_t> first_thread{0};

void NoteThread(int /*signal*/) {
  pid_t none = 0;
  first_thread.compare_exchange_strong(none, gettid());
  if (gettid() != first_thread) ++on_another_thread;
  ++handled;
}

// "SigBlk:\t0000000000000000"
std::string BlockedSignals() {
  std::ifstream status("/proc/thread-self/status");
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, "SigBlk:")) return line;
  }
  return "";
}

TEST(SignalThreadTest, NoOtherThreadIsInterrupted) {
  const int status = StatusOfChild([] {
    StartSignalThread();
    struct sigaction action = {};
    action.sa_handler = NoteThread;
    sigaction(SIGTERM, &action, nullptr);
    std::atomic<bool> computes{true};
    std::atomic<int64_t> product{1};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (computes) product = product * 3 + 1;
      });
    }
    for (int i = 0; i < 1000; ++i) {
      kill(getpid(), SIGTERM);
      while (handled <= i) std::this_thread::yield();
    }
    computes = false;
    for (std::thread& each : threads) each.join();
    if (on_another_thread != 0) _exit(1);
    if (first_thread == getpid()) _exit(2);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SignalThreadTest, WhatHasNoHandlerEndsTheProcessAsItDid) {
  for (const int each : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    const int status = StatusOfChild([each] {
      signal(each, SIG_DFL);
      StartSignalThread();
      kill(getpid(), each);
      std::this_thread::sleep_for(std::chrono::minutes(1));
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << each;
    EXPECT_EQ(WTERMSIG(status), each);
  }
}

TEST(SignalThreadTest, ChildrenHaveTheMaskOfBefore) {
  const int status = StatusOfChild([] {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR2);
    sigprocmask(SIG_SETMASK, &own, nullptr);
    const std::string before = BlockedSignals();
    StartSignalThread();
    if (BlockedSignals() == before) _exit(1);
    const pid_t forked = fork();
    if (forked == 0) _exit(BlockedSignals() == before ? 0 : 1);
    int end = 0;
    waitpid(forked, &end, 0);
    if (end != 0) _exit(2);
    SubprocessOptions grep;
    grep.program = "/bin/grep";
    grep.argv = {"grep", "-q", before, "/proc/self/status"};
    auto started = Subprocess::Start(grep);
    if (!started.ok()) _exit(3);
    if (started->Wait(std::chrono::minutes(1)) != 0) _exit(4);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SignalThreadTest, AForkedChildCanHaveOneOfItsOwn) {
  const int status = StatusOfChild([] {
    StartSignalThread();
    const pid_t forked = fork();
    if (forked == 0) {
      StartSignalThread();
      signal(SIGTERM, NoteThread);
      kill(getpid(), SIGTERM);
      while (handled == 0) std::this_thread::yield();
      _exit(first_thread == getpid() ? 1 : 0);
    }
    int end = 0;
    waitpid(forked, &end, 0);
    _exit(end == 0 ? 0 : 1);
  });
  EXPECT_EQ(status, 0);
}

// The kernel drops what process 1 has no handler for.
TEST(SignalThreadTest, Process1OfAContainerEndsTooWithTheCodeOfAShell) {
  const int status = StatusOfChild([] {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(77);
    const pid_t first = fork();
    if (first == 0) {
      StartSignalThread();
      kill(getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::minutes(1));
      _exit(1);
    }
    int end = 0;
    waitpid(first, &end, 0);
    _exit(WIFEXITED(end) ? WEXITSTATUS(end) : 2);
  });
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

void DoNothing(int /*signal*/) {}

TEST(CaughtSignalsTest, AreThoseWithAHandler) {
  ASSERT_NE(signal(SIGUSR1, DoNothing), SIG_ERR);
  ASSERT_NE(signal(SIGUSR2, SIG_DFL), SIG_ERR);
  ASSERT_NE(signal(SIGWINCH, SIG_IGN), SIG_ERR);
  EXPECT_TRUE(CatchesSignal(getpid(), SIGUSR1));
  EXPECT_FALSE(CatchesSignal(getpid(), SIGUSR2));
  EXPECT_FALSE(CatchesSignal(getpid(), SIGWINCH));
}

TEST(CaughtSignalsTest, OfAProcessThatHasGoneAreNone) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(CatchesSignal(child, SIGUSR1));
}

}  // namespace
}  // namespace tandem
