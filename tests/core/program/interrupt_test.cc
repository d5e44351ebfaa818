#include "core/program/interrupt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(InterruptTest, FirstSignalIsAWishAndTheSecondEndsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    HandleInterrupts();
    if (InterruptSignal() != 0) _exit(1);
    raise(SIGINT);
    if (InterruptSignal() != SIGINT) _exit(2);
    raise(SIGINT);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(InterruptTest, SigtermIsAWishToo) {
  const pid_t child = fork();
  if (child == 0) {
    HandleInterrupts();
    raise(SIGTERM);
    _exit(InterruptSignal() == SIGTERM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(InterruptTest, AnotherRanksSignalIsAdoptedUnlessOneCame) {
  const pid_t child = fork();
  if (child == 0) {
    HandleInterrupts();
    AdoptInterrupt(SIGTERM);
    if (InterruptSignal() != SIGTERM) _exit(1);
    AdoptInterrupt(SIGINT);
    if (InterruptSignal() != SIGTERM) _exit(2);
    // The first that comes is still a wish.
    raise(SIGUSR1);
    _exit(InterruptSignal() == SIGUSR1 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tandem
