// For tests that run real programs: start one, wait, look at what it printed
// and whether anything of it is left.

#ifndef TANDEM_TESTS_CORE_TESTING_PROCESS_TESTING_H_
#define TANDEM_TESTS_CORE_TESTING_PROCESS_TESTING_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/environment.h"
#include "core/process/subprocess.h"

namespace tandem {

// A program that runs while this lives; its output is read all the time.
class RunningProgram {
 public:
  // Runs argv[0] with this process's environment, from which what launchers set
  // is taken, and `extra`. Fails the test if that cannot be.
  explicit RunningProgram(
      const std::vector<std::string>& argv,
      const std::vector<std::pair<std::string, std::string>>& extra = {},
      bool with_terminal = false);
  ~RunningProgram();

  Subprocess& process() { return *process_; }

  // Waits until the program has ended (two minutes at most) and returns what a
  // shell would call its exit code; -1 when it did not end.
  int Wait();

  // After Wait: all that it wrote.
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  // Waits until it has written `text` to stderr; false: it did not.
  bool AwaitError(const std::string& text);

 private:
  std::unique_ptr<Subprocess> process_;
  std::mutex mutex_;  // of the two, while readers are
  std::string out_;
  std::string err_;
  std::vector<std::thread> readers_;
};

// A new folder under the test's temporary one.
std::string MakeTestDir();

// Waits until `condition` holds, two minutes at most.
bool Eventually(const std::function<bool()>& condition);

// Whether a process of that number runs (a dead one that nobody has reaped does
// not).
bool IsRunning(int pid);

// The number in the file, once it is there; 0 if it does not come.
int AwaitPid(const std::string& path);

// A port of 127.0.0.1 that was free a moment ago, below those that the system
// gives to connections: no other test's connection takes it meanwhile.
int FreePort();

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_PROCESS_TESTING_H_
