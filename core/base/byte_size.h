// Numbers of bytes as people write them.

#ifndef TANDEM_CORE_BASE_BYTE_SIZE_H_
#define TANDEM_CORE_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// "80GiB", "1.5 MiB", "4096", "64MB" (powers of 1000): bytes, rounded down.
// Units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB, in any case. InvalidArgument
// for anything else, for negative numbers and for what exceeds 2^62.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

// "0 B", "512 B", "1.5 MiB", "80 GiB": at most three digits after the point.
std::string FormatBytes(int64_t bytes);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_BYTE_SIZE_H_
