#include "core/base/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/status/status.h"

namespace tandem {

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (getrandom(&bytes[0], count, 0) != static_cast<ssize_t>(count)) {
    return absl::ErrnoToStatus(errno, "getrandom");
  }
  return bytes;
}

}  // namespace tandem
