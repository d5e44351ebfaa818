#include "tools/bench/process/program.h"

#include <poll.h>
#include <signal.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/files/user_path.h"
#include "core/process/process_end.h"
#include "core/process/signal_thread.h"
#include "core/process/subprocess.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "tools/cpp/runfiles/runfiles.h"

namespace tandem {

void LineReader::Pump() {
  char bytes[4096];
  while (fd_ >= 0) {
    const ssize_t got = read(fd_, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      fd_ = -1;
      if (!partial_.empty()) lines_.push_back(std::move(partial_));
      return;
    }
    for (ssize_t i = 0; i < got; ++i) {
      if (bytes[i] != '\n') {
        partial_ += bytes[i];
        continue;
      }
      lines_.push_back(std::move(partial_));
      partial_.clear();
    }
  }
}

std::optional<std::string> LineReader::Next() {
  if (lines_.empty()) return std::nullopt;
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

namespace {

constexpr std::chrono::minutes kTimeout(2);
constexpr char kAdvice[] =
    "The benchmark runs Python's PyTorch beside tandem. To have one:\n"
    "  python3 -m venv ~/torch-venv\n"
    "  ~/torch-venv/bin/pip install torch==" TORCH_VERSION
    " numpy\n"
    "and give --python=$HOME/torch-venv/bin/python, or set "
    "TANDEM_PEER_PYTHON.";

// What `python` says its torch's version is; empty if it has none.
absl::StatusOr<std::string> TorchVersion(const std::string& python,
                                         const Environment& environment) {
  SubprocessOptions options;
  options.program = "/usr/bin/env";
  options.argv = {"env", python, "-c",
                  "import torch, numpy; print(torch.__version__)"};
  options.environment = environment.ToStrings();
  options.out = SubprocessOptions::Stream::kPipe;
  options.err = SubprocessOptions::Stream::kPipe;
  TANDEM_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Start(options));
  process.Wait(kTimeout);
  LineReader out(process.out_fd());
  out.Pump();
  return out.Next().value_or("");
}

// The process's scratch folder: whoever takes it removes the folder.
std::atomic<const std::string*> scratch_of_process{nullptr};

// Ranks that still run may make another file meanwhile.
void RemoveWhole(const std::string& folder) {
  constexpr int kMostTries = 100;
  std::error_code ignored;
  for (int i = 0; i < kMostTries && std::filesystem::exists(folder, ignored);
       ++i) {
    std::filesystem::remove_all(folder, ignored);
  }
}

// On the signal thread, which is in the middle of nothing: so this may do what
// other handlers may not.
void RemoveScratchAndEnd(int signal_number) {
  const std::string* const folder = scratch_of_process.exchange(nullptr);
  if (folder != nullptr) RemoveWhole(*folder);
  EndBySignal(signal_number);
}

// A temporary folder that goes with the object, and with the process where
// Ctrl-C or the like ends it. One in a process at a time.
class ScratchFolder {
 public:
  // `name` is part of its path.
  explicit ScratchFolder(const std::string& name) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / (name + ".XXXXXX")).string();
    if (mkdtemp(pattern.data()) == nullptr) return;
    path_ = pattern;
    scratch_of_process = &path_;
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) RemoveOn(each);
  }
  ~ScratchFolder() {
    if (path_.empty()) return;
    // A signal is about to end the process, and has the path.
    while (scratch_of_process.exchange(nullptr) == nullptr) pause();
    RemoveWhole(path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // Empty if it could not be made.
  const std::string& path() const { return path_; }

 private:
  static void RemoveOn(int signal_number) {
    struct sigaction before = {};
    sigaction(signal_number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) return;  // nohup
    struct sigaction action = {};
    action.sa_handler = RemoveScratchAndEnd;
    sigaction(signal_number, &action, nullptr);
  }

  std::string path_;
};

absl::Status Run(
    const std::string& name, const std::string& usage, int argc, char** argv,
    absl::FunctionRef<absl::Status(const std::string& folder)> work) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers,
                          ParseCommandLine(argc, argv, usage));
  if (!leftovers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", leftovers.front(), "' is no flag"));
  }
  const ScratchFolder scratch(name);
  if (scratch.path().empty()) {
    return absl::InternalError("cannot make a temporary folder");
  }
  return work(scratch.path());
}

}  // namespace

absl::StatusOr<std::string> FindPython(const std::string& given,
                                       const Environment& environment) {
  const std::string python =
      !given.empty()
          ? given
          : environment.Get("TANDEM_PEER_PYTHON").value_or("python3");
  TANDEM_ASSIGN_OR_RETURN(const std::string version,
                          TorchVersion(python, environment));
  if (absl::StartsWith(version, TORCH_VERSION)) return python;
  const std::string found =
      version.empty()
          ? "does not import torch and numpy"
          : absl::StrCat("has torch ", version, ", not ", TORCH_VERSION);
  return absl::NotFoundError(absl::StrCat(python, " ", found, ". ", kAdvice));
}

absl::Status CheckAtLeast(const std::string& flag, int value, int least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": expected at least ", least));
}

absl::Status CheckAmong(const std::string& flag,
                        const std::vector<std::string>& values,
                        const std::vector<std::string>& known) {
  for (const std::string& value : values) {
    if (absl::c_linear_search(known, value)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": '", value,
                                                   "': expected one of ",
                                                   NamesNear(value, known)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PythonFromFlag(std::string value) {
  if (value.find('/') != std::string::npos) value = UserPath(value);
  return FindPython(value, Environment::OfProcess());
}

absl::StatusOr<std::string> FolderFor(const std::string& name,
                                      const std::string& parent) {
  const std::string folder = absl::StrCat(parent, "/", name);
  std::error_code failed;
  std::filesystem::create_directory(folder, failed);
  if (!failed) return folder;
  return absl::InternalError(
      absl::StrCat("making ", folder, ": ", failed.message()));
}

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return absl::OkStatus();
  return WriteOutputFile(UserPath(path), json.dump(2) + "\n");
}

int RunBenchProgram(
    const std::string& name, const std::string& usage, int argc, char** argv,
    absl::FunctionRef<absl::Status(const std::string& folder)> work) {
  StartSignalThread();
  return Conclude(name, Run(name, usage, argc, argv, work));
}

absl::StatusOr<std::string> Runfile(const std::string& path) {
  using bazel::tools::cpp::runfiles::Runfiles;
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string program =
      fs::read_symlink("/proc/self/exe", ignored).string();
  std::string error;
  const std::unique_ptr<Runfiles> runfiles(Runfiles::Create(program, &error));
  if (runfiles != nullptr) {
    const std::string found = runfiles->Rlocation("tandem/" + path);
    if (fs::exists(found, ignored)) return found;
  }
  return absl::NotFoundError(absl::StrCat(
      path,
      " is not among the program's runfiles: start it by `bazel run "
      "//tools:bench`"));
}

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void TakeLines(LineReader& reader, std::string& text) {
  reader.Pump();
  while (const auto line = reader.Next()) absl::StrAppend(&text, *line, "\n");
}

// Until both streams have ended.
void ReadAll(const Subprocess& job, Clock::time_point start,
             Clock::time_point deadline, const std::string& mark, JobEnd& end) {
  LineReader out(job.out_fd());
  LineReader err(job.err_fd());
  while ((out.fd() >= 0 || err.fd() >= 0) && Clock::now() < deadline) {
    pollfd ready[] = {{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}};
    poll(ready, 2, /*timeout=*/1000);
    TakeLines(out, end.out);
    if (!mark.empty() && end.seconds_to_mark == 0 &&
        absl::StrContains(end.out, mark)) {
      end.seconds_to_mark = SecondsSince(start);
    }
    TakeLines(err, end.err);
  }
}

}  // namespace

absl::StatusOr<JobEnd> RunJob(const std::vector<std::string>& command,
                              const Environment& environment,
                              std::chrono::milliseconds timeout,
                              const std::string& mark) {
  SubprocessOptions process;
  process.program = command.front();
  process.argv = command;
  process.environment = environment.ToStrings();
  process.out = SubprocessOptions::Stream::kPipe;
  process.err = SubprocessOptions::Stream::kPipe;
  const auto start = Clock::now();
  TANDEM_ASSIGN_OR_RETURN(Subprocess job, Subprocess::Start(process));
  JobEnd end;
  ReadAll(job, start, start + timeout, mark, end);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      start + timeout - Clock::now());
  const auto code = job.Wait(std::max(left, std::chrono::milliseconds(0)));
  end.seconds = SecondsSince(start);
  if (code == 0) return end;
  return absl::InternalError(absl::StrCat(
      command.front(), ": ",
      code.has_value() ? DescribeEnd(*code)
                       : absl::StrCat("no end within ", timeout.count(), " ms"),
      ": ", end.err));
}

}  // namespace tandem
