// --dist_url: PyTorch's init_method, the place where ranks meet.

#ifndef TANDEM_CORE_LAUNCH_DIST_URL_H_
#define TANDEM_CORE_LAUNCH_DIST_URL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct DistUrl {
  enum class Kind { kEnvironment, kTcp, kFile };
  Kind kind = Kind::kEnvironment;
  std::string host;  // kTcp; an IPv6 address stands without its brackets
  int port = 0;      // kTcp: 0 to 65535
  std::string path;  // kFile: absolute
};

// Parses env://, tcp://HOST:PORT, tcp://[IPV6]:PORT and file:///PATH.
// InvalidArgument for anything else (PyTorch's ?rank=..&world_size=.. too:
// those are flags here).
absl::StatusOr<DistUrl> ParseDistUrl(absl::string_view url);

// A host as it is written before a port: "[::1]" is "::1".
absl::string_view WithoutBrackets(absl::string_view host);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_DIST_URL_H_
