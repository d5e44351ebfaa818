// Forked processes, for tests: ranks that are killed or frozen, and children
// whose process changes for good.

#ifndef TANDEM_TESTS_CORE_TESTING_FORKED_RANK_H_
#define TANDEM_TESTS_CORE_TESTING_FORKED_RANK_H_

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem {

// A path under the test's temporary folder that is this test's own.
inline std::string TestFile(const std::string& suffix) {
  std::string test =
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(test.begin(), test.end(), '/', '-');
  return absl::StrCat(::testing::TempDir(), "/", test, suffix);
}

// The wait status of a child that calls `fn`, which may leave what it did to
// its process: handlers, threads, a wish to stop.
inline int StatusOfChild(const std::function<void()>& fn) {
  const pid_t child = fork();
  if (child == 0) {
    fn();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// A process that calls `fn`, leaves its status in a file, and ends: by the
// alarm when it hangs, by the kernel when the test ends.
class ForkedRank {
 public:
  ForkedRank(int rank, const std::function<absl::Status()>& fn)
      : result_(TestFile(absl::StrCat(".result-", rank))), pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Programs do the same: Gloo writes to connections that others have closed.
    signal(SIGPIPE, SIG_IGN);
    alarm(120);  // seconds
    std::ofstream(result_) << fn().ToString() << std::flush;
    _exit(0);
  }
  ~ForkedRank() {
    kill(pid_, SIGKILL);
    int ignored;
    waitpid(pid_, &ignored, 0);
  }
  ForkedRank(const ForkedRank&) = delete;

  pid_t pid() const { return pid_; }

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

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_FORKED_RANK_H_
