#include "tests/e2e/network_hosts/own_namespaces.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

namespace tandem {
namespace {

constexpr int kKinds = CLONE_NEWNS | CLONE_NEWNET;

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// A new network has none that is up.
bool RaiseLoopback() {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = {};
  strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const bool raised = any >= 0 && ioctl(any, SIOCSIFFLAGS, &request) == 0;
  if (any >= 0) close(any);
  return raised;
}

std::string TakeNow() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(kKinds) != 0) {
    if (unshare(CLONE_NEWUSER | kKinds) != 0) {
      return std::string("no namespaces of its own: ") + strerror(errno);
    }
    // A process without rights may map its own group only after the second.
    if (!Write("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") ||
        !Write("/proc/self/setgroups", "deny") ||
        !Write("/proc/self/gid_map", "0 " + std::to_string(group) + " 1")) {
      return "cannot be root of a user namespace";
    }
  }
  // What is mounted from here on is seen here alone.
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return std::string("cannot mount: ") + strerror(errno);
  }
  return RaiseLoopback() ? "" : "cannot have a loopback of its own";
}

}  // namespace

std::string TakeOwnNamespaces() {
  static const std::string* const answer = new std::string(TakeNow());
  return *answer;
}

std::string MountMemory(const std::string& folder, int bytes) {
  const std::string size = "size=" + std::to_string(bytes);
  if (mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) == 0) return "";
  return "cannot mount a tmpfs: " + std::string(strerror(errno));
}

bool Shell(const std::string& command) {
  return system(("PATH=$PATH:/usr/sbin:/sbin; " + command).c_str()) == 0;
}

}  // namespace tandem
