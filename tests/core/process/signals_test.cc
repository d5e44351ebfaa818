#include "core/process/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace tandem {
namespace {

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
