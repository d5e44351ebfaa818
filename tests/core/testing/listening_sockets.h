// Sockets of a process, and what this one listens on. For tests.

#ifndef TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_
#define TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_

#include <set>
#include <string>
#include <vector>

namespace tandem {

// Inodes of the sockets of a process: "self", or its number. None for one that
// has ended.
std::set<std::string> SocketsOf(const std::string& process);

// The local addresses of all TCP sockets on which this process listens, from
// /proc/net/tcp and tcp6: "127.0.0.1:4711", or for IPv6 the kernel's hex digits
// after "v6 ".
std::vector<std::string> ListeningSockets();

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_
