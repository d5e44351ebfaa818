// Host identity: which ranks can share memory.

#ifndef TANDEM_CORE_BACKEND_HOST_IDENTITY_H_
#define TANDEM_CORE_BACKEND_HOST_IDENTITY_H_

#include <string>

namespace tandem {

// The same text for processes that run on one kernel, under one host name and
// in one network namespace (whose local sockets they see), and for no others:
// two containers of a machine count as two hosts unless they share these.
std::string HostIdentity();

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_HOST_IDENTITY_H_
