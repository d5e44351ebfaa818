// Runs a whole program, as a user does, and keeps what it says. For tests.

#ifndef TANDEM_TESTS_E2E_PROGRAM_H_
#define TANDEM_TESTS_E2E_PROGRAM_H_

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace tandem {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal where a signal ended it
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::map<std::string, std::string> environment;  // on top of the test's own
  std::string working_folder;                      // empty: the test's
  // So that a program that hangs ends: far more than one takes on a busy
  // machine.
  std::chrono::seconds timeout{300};
};

// For as long as a job starts whose ranks must meet within a short timeout: of
// a test program whose tests run side by side (side_by_side.h) no other job
// then does that waits for its turn. Else the ranks of many, which load
// LibTorch at once on a few cores, come as far apart as that timeout.
class StartTurn {
 public:
  StartTurn();  // waits
  ~StartTurn() { End(); }
  StartTurn(const StartTurn&) = delete;
  StartTurn& operator=(const StartTurn&) = delete;

  // The job has started.
  void End();

 private:
  int file_;  // locked; -1: the turn has ended
};

// A running program, in a session of its own, with stdin empty. Not
// thread-safe.
class Program {
 public:
  // `path` is relative to the test's runfiles root ("tools/train").
  Program(const std::string& path, const std::vector<std::string>& arguments,
          const ProgramOptions& options = ProgramOptions());
  // Kills what is left of its session.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }

  // Waits until stdout or stderr holds `text`; false when the program ended, or
  // the timeout passed, without it.
  bool WaitForOutput(const std::string& text);

  // Sends a signal to the program alone.
  void Signal(int signal_number);

  // Waits for its end. On a timeout the session is killed, and the exit code
  // says so (128 + SIGKILL).
  ProgramResult Wait();

  // Processes of its session, itself included, zombies left out: after its
  // end, its orphans.
  std::vector<pid_t> LivingProcesses() const;

 private:
  bool Reap();
  void KillAll() const;

  pid_t pid_;
  std::string out_path_;
  std::string err_path_;
  std::chrono::steady_clock::time_point deadline_;
  bool ended_ = false;
  int exit_code_ = -1;
};

// Starts and waits.
ProgramResult RunProgram(const std::string& path,
                         const std::vector<std::string>& arguments,
                         const ProgramOptions& options = ProgramOptions());

// A new, empty folder under the test's temporary one.
std::string NewFolder(const std::string& name);

// The whole of a file; empty if there is none.
std::string FileContents(const std::string& path);

// The names of what a folder holds, in their order.
std::vector<std::string> NamesIn(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_PROGRAM_H_
