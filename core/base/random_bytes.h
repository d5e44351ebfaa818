// Random bytes that nobody can guess, from the kernel: for nonces and secrets.
// What training draws comes from core/random.

#ifndef TANDEM_CORE_BASE_RANDOM_BYTES_H_
#define TANDEM_CORE_BASE_RANDOM_BYTES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// Requires count <= 256: as many come in one piece. Thread-safe.
absl::StatusOr<std::string> RandomBytes(size_t count);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_RANDOM_BYTES_H_
