// Host identity: which ranks can share memory.

#ifndef TANDEM_CORE_BACKEND_HOST_IDENTITY_H_
#define TANDEM_CORE_BACKEND_HOST_IDENTITY_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// The same text for processes that run on one kernel, under one host name and
// in one network namespace (whose local sockets they see), and for no others:
// two containers of a machine count as two hosts unless they share these.
std::string HostIdentity();

// Whether processes with these identities have one loopback interface, as
// containers may that have a name each. Names that are no HostIdentity() are of
// one host, whose ranks a test tells apart.
bool SharesLoopback(absl::string_view one, absl::string_view other);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_HOST_IDENTITY_H_
