// Several hosts on one machine: network namespaces with a name and an address
// of their own, on one bridge, whose links can be cut, slowed and mended. For
// tests.
//
//   host0 (10.77.0.1) ──┐
//                       ├── bridge, in the test's own network namespace
//   host1 (10.77.0.2) ──┘
//
// They share the machine's files, clock and processes' numbers. On each host
// every host's name is known.

#ifndef TANDEM_TESTS_E2E_NETWORK_HOSTS_NETWORK_HOSTS_H_
#define TANDEM_TESTS_E2E_NETWORK_HOSTS_NETWORK_HOSTS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/program.h"

namespace tandem {

// Not thread-safe, and made while the process has one thread.
class NetworkHosts {
 public:
  explicit NetworkHosts(int count);
  // Kills what runs on them.
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  // Empty: they are there. Else why this machine cannot have them: a line to
  // skip a test with.
  const std::string& why_not() const { return why_not_; }

  std::string Name(int host) const;
  std::string Address(int host) const;

  // Starts a program, named as Program's, on a host.
  std::unique_ptr<Program> Start(
      int host, const std::string& path, std::vector<std::string> arguments,
      const ProgramOptions& options = ProgramOptions()) const;

  // Packets of a host are lost without a word, as by a switch that died;
  // its interface stays up.
  void Drop(int host) const;
  // The host's cable is pulled out: its interface is down, too.
  void Cut(int host) const;
  void Mend(int host) const;
  // The host cannot reach itself: its loopback interface is down for good.
  void DropLoopback(int host) const;
  // What the host gets comes so fast at most; where the kernel can (netem),
  // with so many milliseconds' delay in each direction as well.
  void Slow(int host, int kilobits_per_second, int delay_ms) const;

  // The host dies: it is cut, and each of its processes is killed, so that
  // nothing tells the others.
  void Kill(int host) const;
  std::vector<pid_t> Processes(int host) const;

  // Whether this kernel delays packets (tc's netem).
  static bool CanDelay();

 private:
  std::string Make(int count);
  std::string AddHost(int host);
  void KillProcesses(int host) const;

  std::string folder_;
  std::vector<pid_t> keepers_;  // of the namespaces: a process on each host
  std::string why_not_;         // made with the two above
};

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_NETWORK_HOSTS_NETWORK_HOSTS_H_
