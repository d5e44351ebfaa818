#include "tests/e2e/program.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kLook(10);

std::string TestFolder() {
  const char* folder = getenv("TEST_TMPDIR");
  return folder == nullptr ? "/tmp" : folder;
}

std::string Runfile(const std::string& path) {
  const char* root = getenv("TEST_SRCDIR");
  const char* workspace = getenv("TEST_WORKSPACE");
  if (root == nullptr || workspace == nullptr) return path;
  return std::string(root) + "/" + workspace + "/" + path;
}

void Redirect(int descriptor, const char* path, int flags) {
  const int file = open(path, flags, 0644);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
  close(file);
}

// Whether process `pid` lives in session `session`, by /proc/PID/stat: "pid
// (name) state parent group session ...". A zombie does not live, and what
// names functions for a sanitizer ends a moment after the process that asked
// it.
bool LivesInSession(const std::string& pid, pid_t session) {
  const std::string text = FileContents("/proc/" + pid + "/stat");
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return false;
  const bool is_sanitizers = text.find("(llvm-symbolizer") != std::string::npos;
  std::istringstream fields(text.substr(after_name + 1));
  char state = 0;
  pid_t parent = 0, group = 0, its_session = 0;
  fields >> state >> parent >> group >> its_session;
  return its_session == session && state != 'Z' && !is_sanitizers;
}

}  // namespace

std::string FileContents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // The files in /proc of a process that has just ended open and cannot be
  // read: a stream notes it, an iterator would throw.
  std::ostringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string NewFolder(const std::string& name) {
  std::string folder = TestFolder() + "/" + name + ".XXXXXX";
  CHECK(mkdtemp(&folder[0]) != nullptr) << folder;
  return folder;
}

// The lock goes with the descriptor, which programs do not inherit.
StartTurn::StartTurn()
    : file_(open((TestFolder() + "/start_turn").c_str(),
                 O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  PCHECK(file_ >= 0);
  while (flock(file_, LOCK_EX) != 0) PCHECK(errno == EINTR);
}

void StartTurn::End() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

Program::Program(const std::string& path,
                 const std::vector<std::string>& arguments,
                 const ProgramOptions& options)
    : deadline_(std::chrono::steady_clock::now() + options.timeout) {
  const std::string folder = NewFolder("program");
  out_path_ = folder + "/out";
  err_path_ = folder + "/err";
  const std::string program = std::filesystem::absolute(Runfile(path));
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_ = fork();
  PCHECK(pid_ >= 0);
  if (pid_ == 0) {
    setsid();
    Redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
    Redirect(STDOUT_FILENO, out_path_.c_str(), O_WRONLY | O_CREAT);
    Redirect(STDERR_FILENO, err_path_.c_str(), O_WRONLY | O_CREAT);
    // What it leaves among temporary files goes with the test.
    setenv("TMPDIR", folder.c_str(), 1);
    for (const auto& [name, value] : options.environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    const std::string& place = options.working_folder;
    if (!place.empty() && chdir(place.c_str()) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  // From here on it is found in its session.
  while (getsid(pid_) != pid_) std::this_thread::yield();
}

Program::~Program() {
  KillAll();
  if (!ended_) waitpid(pid_, nullptr, 0);
}

void Program::KillAll() const {
  for (pid_t pid : LivingProcesses()) kill(pid, SIGKILL);
}

bool Program::Reap() {
  if (ended_) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

bool Program::WaitForOutput(const std::string& text) {
  while (true) {
    const bool ended = Reap();
    const std::string said = FileContents(out_path_) + FileContents(err_path_);
    if (said.find(text) != std::string::npos) return true;
    if (ended || std::chrono::steady_clock::now() > deadline_) return false;
    std::this_thread::sleep_for(kLook);
  }
}

// The number of one that was waited for may be another's by now.
void Program::Signal(int signal_number) {
  if (!ended_) kill(pid_, signal_number);
}

ProgramResult Program::Wait() {
  while (!Reap()) {
    if (std::chrono::steady_clock::now() > deadline_) KillAll();
    std::this_thread::sleep_for(kLook);
  }
  return {exit_code_, FileContents(out_path_), FileContents(err_path_)};
}

std::vector<pid_t> Program::LivingProcesses() const {
  std::vector<pid_t> living;
  DIR* proc = opendir("/proc");
  PCHECK(proc != nullptr);
  while (dirent* entry = readdir(proc)) {
    if (isdigit(entry->d_name[0]) && LivesInSession(entry->d_name, pid_)) {
      living.push_back(atoi(entry->d_name));
    }
  }
  closedir(proc);
  return living;
}

ProgramResult RunProgram(const std::string& path,
                         const std::vector<std::string>& arguments,
                         const ProgramOptions& options) {
  return Program(path, arguments, options).Wait();
}

}  // namespace tandem
