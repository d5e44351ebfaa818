// A small program of several ranks for tests: says who it is, and misbehaves as
// it is told.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/environment.h"
#include "core/elastic/rank_counts.h"
#include "core/launch/flags.h"
#include "core/launch/launcher.h"
#include "core/launch/resolve_launch.h"
#include "core/launch/restarts.h"
#include "core/process/signal_thread.h"
#include "core/program/command_line.h"
#include "tests/core/launch/group_files.h"

ABSL_FLAG(std::vector<std::string>, behaviour, {},
          "What ranks do after they have said who they are: RANK:ACTION or "
          "RANK:ACTION:NUMBER, separated by commas.");
ABSL_FLAG(std::string, pid_dir, "",
          "Where each rank leaves its process number, in a file of its rank's "
          "name; ranks wait for each other's before they act.");
ABSL_FLAG(std::string, metrics_file, "",
          "Rank 0 writes one step here, whose loss is 1 / world size.");
ABSL_FLAG(int, can_be_lost_from, 0,
          "Ranks from this one on can be lost; 0: none can.");
ABSL_FLAG(int, replacements, 0,
          "How often the launcher replaces a rank that has died.");
ABSL_FLAG(int, open_files, 0,
          "How many files the launcher can have open; 0: as many as before.");
ABSL_FLAG(bool, store_takes_long, false,
          "The launcher's store is not there as long as any test waits.");
ABSL_FLAG(int, restart_delay_ms, 1, "The launcher's first restart delay.");
ABSL_FLAG(int, grace_ms, 5000, "The launcher's grace periods.");
ABSL_FLAG(int, room_grace_ms, 600000,
          "How long ranks have that make room for a node.");
ABSL_FLAG(std::string, group_dir, "",
          "Where launchers of an elastic job's nodes meet (group_files.h).");

namespace tandem {
namespace {

using std::chrono::milliseconds;

std::atomic<int> signals_seen{0};
std::atomic<int> last_signal{0};

void CountSignal(int) { ++signals_seen; }

void NoteSignal(int signal) { last_signal = signal; }

// Longer than any test waits.
void SleepLong() { std::this_thread::sleep_for(std::chrono::minutes(10)); }

RestartCount OwnRestarts() {
  return ReadRestartCount(Environment::OfProcess()).value();
}

nlohmann::json ToJson(const Launch& launch) {
  return {{"rank", launch.rank},
          {"world_size", launch.world_size},
          {"local_rank", launch.local_rank},
          {"local_world_size", launch.local_world_size},
          {"node_rank", launch.node_rank},
          {"nnodes", launch.nnodes},
          {"launcher", launch.launcher},
          {"kind", static_cast<int>(launch.rendezvous.kind)},
          {"host", launch.rendezvous.host},
          {"port", launch.rendezvous.port},
          {"path", launch.rendezvous.path},
          {"served_by_launcher", launch.rendezvous.served_by_launcher},
          {"key_prefix", launch.rendezvous.key_prefix},
          {"restart_count", OwnRestarts().done},
          {"max_restarts", OwnRestarts().most},
          {"stderr_is_terminal", isatty(STDERR_FILENO) == 1}};
}

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

// Stands for a TCPStore: a socket that listens for as long as this process is.
absl::StatusOr<int> Listen(const std::string& host, int port) {
  if (absl::GetFlag(FLAGS_store_takes_long)) {
    std::cerr << "waiting for the store" << std::endl;
    SleepLong();
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = AddressOf(host, port);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(fd, 64) != 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot listen on ", host, ":", port));
  }
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

bool CanReachStore(const Rendezvous& rendezvous) {
  const sockaddr_in address = AddressOf(rendezvous.host, rendezvous.port);
  for (int attempt = 0; attempt < 500; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool reached =
        connect(fd, reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) == 0;
    close(fd);
    if (reached) return true;
    std::this_thread::sleep_for(milliseconds(20));  // node 0 may come later
  }
  return false;
}

void LeaveNumber(const std::string& name, int number) {
  const std::string dir = absl::GetFlag(FLAGS_pid_dir);
  if (dir.empty()) return;
  const std::string path = absl::StrCat(dir, "/", name);
  const std::string draft = absl::StrCat(path, ".", getpid());
  std::ofstream(draft) << number;
  std::rename(draft.c_str(), path.c_str());
}

void LeavePid(const std::string& name) { LeaveNumber(name, getpid()); }

// The file that tells that a rank of this attempt has left its pid.
std::string PidIsLeft(int rank) {
  return absl::StrCat("attempt_", OwnRestarts().done, "_", rank);
}

void AwaitPids(int world_size) {
  const std::string dir = absl::GetFlag(FLAGS_pid_dir);
  for (int rank = 0; !dir.empty() && rank < world_size; ++rank) {
    while (access((dir + "/" + PidIsLeft(rank)).c_str(), F_OK) != 0) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

// Says how many of `signal` came within half a second of the first; ends as a
// program that was stopped if it is one that stops.
int CountSignals(int signal) {
  std::signal(signal, CountSignal);
  LeavePid(absl::StrCat("ready_", getpid()));
  while (signals_seen == 0) std::this_thread::sleep_for(milliseconds(5));
  std::this_thread::sleep_for(milliseconds(500));
  std::cout << "signals " << signals_seen << std::endl;
  return signal == SIGINT ? 10 : 0;
}

// Goes on when `signal` comes, having told that it came.
void IgnoreSignal(int signal) {
  std::signal(signal, CountSignal);
  LeavePid(absl::StrCat("ready_", getpid()));
  while (signals_seen == 0) std::this_thread::sleep_for(milliseconds(5));
  LeavePid(absl::StrCat("ignored_", getpid()));
  SleepLong();
}

// Ends by `signal` as a program that stops for it.
int HeedSignal(int signal) {
  std::signal(signal, NoteSignal);
  LeavePid(absl::StrCat("ready_", getpid()));
  while (last_signal == 0) std::this_thread::sleep_for(milliseconds(5));
  return 128 + last_signal;
}

// Ranks agree, in the first attempt, to stop by a signal that any of them was
// sent, and take `save_ms` for it.
int StopTogether(int save_ms) {
  if (OwnRestarts().done > 0) return 0;
  for (const int each : {SIGTERM, SIGUSR1}) std::signal(each, NoteSignal);
  LeavePid(absl::StrCat("ready_", getpid()));
  int agreed = 0;
  while (agreed == 0) {
    std::this_thread::sleep_for(milliseconds(5));
    if (last_signal != 0) LeaveNumber("agreed", last_signal);
    std::ifstream(absl::GetFlag(FLAGS_pid_dir) + "/agreed") >> agreed;
  }
  std::this_thread::sleep_for(milliseconds(save_ms));
  return 128 + agreed;
}

int SleepWithChild() {
  if (fork() == 0) {
    LeavePid("grandchild");
    SleepLong();
    _exit(0);
  }
  while (access((absl::GetFlag(FLAGS_pid_dir) + "/grandchild").c_str(), F_OK)) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return 4;
}

// More than a pipe holds, to both outputs.
void Flood(int kilobytes) {
  for (int i = 0; i < kilobytes; ++i) {
    for (std::ostream* out : {&std::cout, &std::cerr}) {
      *out << std::string(1023, 'x') << "\n";
    }
  }
  std::cout << std::flush;
  LeavePid(absl::StrCat("flooded_", getpid()));
  SleepLong();
}

int Act(const std::string& action, int number) {
  if (action == "recover") {
    std::cerr << "attempt " << OwnRestarts().done << std::endl;
    return OwnRestarts().done < number ? 7 : 0;
  }
  if (action == "exit") {
    std::cerr << "about to exit\nfor a reason" << std::endl;
    return number;
  }
  if (action == "diverge") {
    std::cerr << "the loss of step 3 is nan: training has diverged"
              << std::endl;
    return number;
  }
  if (action == "overflow") {
    std::cerr << "step 3: layer fc: its output has 2 infinite of 8 values"
              << std::endl;
    return number;
  }
  if (action == "disconnect") {
    std::cerr << "all-reduce #2 (bucket 0 of step 1) failed" << std::endl;
    return number;
  }
  if (action == "refuse") {
    std::cerr << "refused for a reason" << std::endl;
    return number;
  }
  if (action == "raise") {
    std::cerr << "about to raise" << std::endl;
    // Under a sanitizer some signals have handlers, which report and exit.
    std::signal(number, SIG_DFL);
    raise(number);
  }
  if (action == "count") return CountSignals(number);
  if (action == "ignore") IgnoreSignal(number);
  if (action == "heed") return HeedSignal(number);
  if (action == "together") return StopTogether(number);
  if (action == "sleep") SleepLong();
  if (action == "flood") Flood(number);
  if (action == "grandchild") return SleepWithChild();
  if (action == "bar") {
    std::cerr << "10%\r20%\rdone" << std::flush;  // no newline
    std::cout << "half a line" << std::flush;
  }
  return 0;
}

void LimitOpenFiles(rlim_t files) {
  if (files == 0) return;
  const rlimit limit = {files, files};
  setrlimit(RLIMIT_NOFILE, &limit);
}

int RunRank(const Launch& launch) {
  const std::string who = ToJson(launch).dump();
  if (launch.rendezvous.served_by_launcher && launch.launcher == "tandem" &&
      !CanReachStore(launch.rendezvous)) {
    std::cerr << "no store" << std::endl;
    return 9;
  }
  std::cout << who << std::endl;
  const std::string file = absl::GetFlag(FLAGS_metrics_file);
  if (!file.empty() && launch.rank == 0) {
    std::ofstream(file) << nlohmann::json({{"event", "step"},
                                           {"launcher", launch.launcher},
                                           {"loss", 1.0 / launch.world_size}})
                        << "\n";
  }
  LeavePid(absl::StrCat(launch.rank));
  LeavePid(PidIsLeft(launch.rank));
  AwaitPids(launch.world_size);
  for (const std::string& entry : absl::GetFlag(FLAGS_behaviour)) {
    const std::vector<std::string> parts = absl::StrSplit(entry, ':');
    if (parts[0] != absl::StrCat(launch.rank)) continue;
    return Act(parts[1], parts.size() > 2 ? std::atoi(parts[2].c_str()) : 0);
  }
  return 0;
}

int Main(int argc, char** argv) {
  StartSignalThread();
  const auto args = ParseCommandLine(argc, argv, "Says who it is.");
  if (!args.ok()) {
    std::cerr << args.status().message() << std::endl;
    return 2;
  }
  const auto plan =
      ResolveLaunch(LaunchSettingsFromFlags(), Environment::OfProcess());
  if (!plan.ok()) {
    std::cerr << plan.status().message() << std::endl;
    return 2;
  }
  if (!plan->is_launcher) return RunRank(plan->launch);
  LauncherOptions options;
  if (plan->limits.elastic()) {
    options.rank_counts = RankCounts::Of(plan->limits, 1, nullptr).value();
  }
  options.serve_store = Listen;
  options.death_grace = milliseconds(absl::GetFlag(FLAGS_grace_ms));
  options.stop_grace = options.death_grace;
  options.room_grace = milliseconds(absl::GetFlag(FLAGS_room_grace_ms));
  options.refusal_code = 2;
  options.restart_delay = milliseconds(absl::GetFlag(FLAGS_restart_delay_ms));
  const int first = absl::GetFlag(FLAGS_can_be_lost_from);
  if (first > 0) options.can_be_lost = [=](int rank) { return rank >= first; };
  options.max_replacements = absl::GetFlag(FLAGS_replacements);
  options.lose = [](const Launch&, int, const std::string&) { return true; };
  const std::string groups = absl::GetFlag(FLAGS_group_dir);
  if (!groups.empty()) {
    options.meet_nodes = [groups](const Launch& node, int /*port*/) {
      return std::make_unique<GroupFiles>(groups, node.node_rank);
    };
  }
  LimitOpenFiles(absl::GetFlag(FLAGS_open_files));
  return RunLauncher(*plan, {argv, argv + argc}, options);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }
