#include "tests/e2e/network_hosts/network_hosts.h"

#include <ctype.h>
#include <glog/logging.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/core/testing/process_testing.h"
#include "tests/e2e/network_hosts/own_namespaces.h"

namespace tandem {
namespace {

constexpr char kEnterHost[] = "tests/e2e/network_hosts/enter_host";
constexpr char kBridge[] = "bridge0";

// The host's end in the test's namespace; its own is eth0.
std::string LinkOf(int host) { return "link" + std::to_string(host); }

// On a host.
std::string On(pid_t keeper, const std::string& command) {
  return "nsenter --target " + std::to_string(keeper) + " --net " + command;
}

// In the child: takes the host's namespaces, and keeps them until the test
// ends. What it writes tells that it has them.
[[noreturn]] void KeepHost(const std::string& name, const std::string& names,
                           int ready) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool has =
      unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS) == 0 &&
      sethostname(name.c_str(), name.size()) == 0 &&
      mount(names.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
  const char answer = has ? '1' : '0';
  if (write(ready, &answer, 1) != 1) _exit(1);
  for (;;) pause();
}

// The network namespace of a process; empty: it is gone.
std::string NetworkOf(pid_t pid) {
  char name[PATH_MAX] = {};
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/net";
  return readlink(path.c_str(), name, sizeof(name) - 1) > 0 ? name : "";
}

}  // namespace

NetworkHosts::NetworkHosts(int count) : why_not_(Make(count)) {}

NetworkHosts::~NetworkHosts() {
  for (size_t host = 0; host < keepers_.size(); ++host) {
    KillProcesses(static_cast<int>(host));  // there may be no link to cut
    kill(keepers_[host], SIGKILL);
    waitpid(keepers_[host], nullptr, 0);
    // The kernel would do it, but later.
    Shell("ip link del " + LinkOf(static_cast<int>(host)) + " 2> /dev/null");
  }
  if (!keepers_.empty()) Shell(std::string("ip link del ") + kBridge);
}

std::string NetworkHosts::Make(int count) {
  std::string why_not = TakeOwnNamespaces();
  if (!why_not.empty()) return why_not;
  for (const std::string tool : {"ip", "tc", "nsenter"}) {
    if (Shell("command -v " + tool + " > /dev/null")) continue;
    return "ip, tc and nsenter (iproute2, util-linux) are not all there";
  }
  if (!Shell(std::string("ip link add ") + kBridge +
             " type bridge && ip link set " + kBridge + " up")) {
    return "this kernel gives the test no bridge";
  }
  folder_ = NewFolder("hosts");
  std::ofstream names(folder_ + "/hosts");
  names << "127.0.0.1 localhost\n";
  for (int host = 0; host < count; ++host) {
    names << Address(host) << " " << Name(host) << "\n";
  }
  names.close();
  for (int host = 0; host < count && why_not.empty(); ++host) {
    why_not = AddHost(host);
  }
  return why_not;
}

std::string NetworkHosts::AddHost(int host) {
  int ready[2];
  PCHECK(pipe(ready) == 0);
  const pid_t keeper = fork();
  PCHECK(keeper >= 0);
  if (keeper == 0) KeepHost(Name(host), folder_ + "/hosts", ready[1]);
  close(ready[1]);
  char answer = '0';
  const bool has = read(ready[0], &answer, 1) == 1 && answer == '1';
  close(ready[0]);
  if (!has) {
    kill(keeper, SIGKILL);
    waitpid(keeper, nullptr, 0);
    return "this kernel gives the test no hosts of its own";
  }
  keepers_.push_back(keeper);
  const std::string link = LinkOf(host);
  const bool linked =
      Shell("ip link add " + link + " type veth peer name eth0 netns " +
            std::to_string(keeper)) &&
      Shell("ip link set " + link + " master " + kBridge + " up") &&
      Shell(On(keeper, "ip addr add " + Address(host) + "/24 dev eth0")) &&
      Shell(On(keeper, "ip link set lo up")) &&
      Shell(On(keeper, "ip link set eth0 up"));
  return linked ? "" : "this kernel gives the test no links";
}

std::string NetworkHosts::Name(int host) const {
  return "host" + std::to_string(host);
}

std::string NetworkHosts::Address(int host) const {
  return "10.77.0." + std::to_string(host + 1);
}

std::unique_ptr<Program> NetworkHosts::Start(
    int host, const std::string& path, std::vector<std::string> arguments,
    const ProgramOptions& options) const {
  arguments.insert(arguments.begin(), {std::to_string(keepers_[host]), path});
  return std::make_unique<Program>(kEnterHost, arguments, options);
}

void NetworkHosts::Drop(int host) const {
  CHECK(Shell("ip link set " + LinkOf(host) + " nomaster"));
}

void NetworkHosts::Cut(int host) const {
  CHECK(Shell("ip link set " + LinkOf(host) + " down"));
}

void NetworkHosts::Mend(int host) const {
  CHECK(Shell("ip link set " + LinkOf(host) + " master " + kBridge + " up"));
}

void NetworkHosts::DropLoopback(int host) const {
  CHECK(Shell(On(keepers_[host], "ip link set lo down")));
}

void NetworkHosts::Slow(int host, int kilobits_per_second, int delay_ms) const {
  const std::string rate = std::to_string(kilobits_per_second) + "kbit";
  const std::string link = LinkOf(host);
  if (!CanDelay()) {
    CHECK(Shell("tc qdisc add dev " + link + " root tbf rate " + rate +
                " burst 16kb latency 5s"));
    return;
  }
  const std::string delay = " delay " + std::to_string(delay_ms) + "ms";
  CHECK(Shell("tc qdisc add dev " + link + " root netem rate " + rate + delay));
  CHECK(Shell(On(keepers_[host], "tc qdisc add dev eth0 root netem" + delay)));
}

bool NetworkHosts::CanDelay() {
  static const bool can =
      Shell("tc qdisc add dev lo root netem delay 0ms 2> /dev/null");
  return can;
}

void NetworkHosts::Kill(int host) const {
  Cut(host);
  KillProcesses(host);
}

void NetworkHosts::KillProcesses(int host) const {
  // A process that is about to die may have started another.
  const bool gone = Eventually([&] {
    const std::vector<pid_t> alive = Processes(host);
    for (const pid_t pid : alive) kill(pid, SIGKILL);
    return alive.empty();
  });
  CHECK(gone) << "processes of host " << host << " survive SIGKILL";
}

std::vector<pid_t> NetworkHosts::Processes(int host) const {
  const std::string network = NetworkOf(keepers_[host]);
  std::vector<pid_t> found;
  if (network.empty()) return found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!isdigit(name[0])) continue;
    const pid_t pid = std::stoi(name);
    if (pid != keepers_[host] && NetworkOf(pid) == network) {
      found.push_back(pid);
    }
  }
  return found;
}

}  // namespace tandem
