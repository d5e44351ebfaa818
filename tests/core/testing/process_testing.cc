#include "tests/core/testing/process_testing.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/process/process_end.h"
#include "core/store/sockets.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kPatience(120);

void ReadAll(int fd, std::string& into, std::mutex& mutex) {
  char buffer[4096];
  while (fd >= 0) {
    pollfd readable = {fd, POLLIN, 0};
    poll(&readable, 1, -1);
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got > 0) {
      const std::lock_guard<std::mutex> lock(mutex);
      into.append(buffer, got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return;
    }
  }
}

// Without what launchers set, whatever this test runs under.
Environment CleanEnvironment() {
  Environment result;
  for (const std::string& variable : Environment::OfProcess().ToStrings()) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    bool launchers = name == "RANK" || name == "WORLD_SIZE";
    for (const char* prefix :
         {"LOCAL_", "GROUP_", "MASTER_", "SLURM_", "OMPI_", "PMI_", "PMIX_",
          "MPI_LOCAL", "MV2_", "MVP_", "JSM_", "FLUX_", "PALS_", "PET_",
          "TORCHELASTIC_", "TANDEM_"}) {
      launchers = launchers || absl::StartsWith(name, prefix);
    }
    if (!launchers) result.Set(name, variable.substr(equals + 1));
  }
  return result;
}

}  // namespace

RunningProgram::RunningProgram(
    const std::vector<std::string>& argv,
    const std::vector<std::pair<std::string, std::string>>& extra,
    bool with_terminal) {
  using Stream = SubprocessOptions::Stream;
  Environment env = CleanEnvironment();
  for (const auto& [name, value] : extra) env.Set(name, value);
  SubprocessOptions options;
  options.program = argv[0];
  options.argv = argv;
  options.environment = env.ToStrings();
  options.out = Stream::kPipe;
  options.err = with_terminal ? Stream::kTerminal : Stream::kPipe;
  auto process = Subprocess::Start(options);
  if (!process.ok()) {
    ADD_FAILURE() << process.status();
    std::abort();
  }
  process_ = std::make_unique<Subprocess>(*std::move(process));
  readers_.emplace_back(ReadAll, process_->out_fd(), std::ref(out_),
                        std::ref(mutex_));
  readers_.emplace_back(ReadAll, process_->err_fd(), std::ref(err_),
                        std::ref(mutex_));
}

RunningProgram::~RunningProgram() {
  process_->Stop(std::chrono::milliseconds(0));
  for (std::thread& reader : readers_) reader.join();
}

int RunningProgram::Wait() {
  const auto end = process_->Wait(kPatience);
  if (!end.has_value()) process_->Stop(std::chrono::milliseconds(0));
  for (std::thread& reader : readers_) reader.join();
  readers_.clear();
  return end.has_value() ? ShellExitCode(*end) : -1;
}

bool RunningProgram::AwaitError(const std::string& text) {
  return Eventually([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return err_.find(text) != std::string::npos;
  });
}

std::string MakeTestDir() {
  std::string path = ::testing::TempDir() + "/tandem.XXXXXX";
  return mkdtemp(path.data()) == nullptr ? "" : path;
}

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool IsRunning(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z' &&
         stat[name_end + 2] != 'X';
}

int AwaitPid(const std::string& path) {
  int pid = 0;
  Eventually([&] { return static_cast<bool>(std::ifstream(path) >> pid); });
  return pid;
}

int FreePort() {
  constexpr unsigned kFirst = 16384;
  constexpr unsigned kPorts = 16384;
  std::random_device random;
  absl::StatusOr<BoundSocket> socket = BoundSocket();
  for (int tries = 0; tries < 100; ++tries) {
    const int port = static_cast<int>(kFirst + random() % kPorts);
    socket = ListenOn("127.0.0.1", port);
    if (!socket.ok()) continue;
    close(socket->fd);
    return port;
  }
  ADD_FAILURE() << "no free port: " << socket.status();
  return 0;
}

}  // namespace tandem
