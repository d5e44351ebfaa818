// For tests: what this process listens on.

#ifndef TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_
#define TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_

#include <string>
#include <vector>

namespace tandem {

// The local addresses of all TCP sockets on which this process listens, from
// /proc/net/tcp and tcp6: "127.0.0.1:4711", or for IPv6 the kernel's hex digits
// after "v6 ".
std::vector<std::string> ListeningSockets();

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_
