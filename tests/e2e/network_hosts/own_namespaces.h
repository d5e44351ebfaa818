// Namespaces of a test's own, in which it may mount and make networks as root
// may, without being seen outside. For tests.

#ifndef TANDEM_TESTS_E2E_NETWORK_HOSTS_OWN_NAMESPACES_H_
#define TANDEM_TESTS_E2E_NETWORK_HOSTS_OWN_NAMESPACES_H_

#include <string>

namespace tandem {

// Moves this process, which must have one thread, into new mount and network
// namespaces: root's way, else inside a user namespace in which it is root.
// Empty, or why that cannot be: a line to skip a test with. The first call
// counts; later ones repeat its answer.
std::string TakeOwnNamespaces();

// Mounts a file system in memory of so many bytes at most on `folder`. Empty,
// or why not. Needs namespaces of its own.
std::string MountMemory(const std::string& folder, int bytes);

// Runs a command of the shell's; whether it ended well. What it writes to
// stderr goes to the test's log.
bool Shell(const std::string& command);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_NETWORK_HOSTS_OWN_NAMESPACES_H_
