// Cache line's size: what lies in different lines can be written by different
// cores at once without either waiting for the other.

#ifndef TANDEM_CORE_BASE_CACHE_LINE_H_
#define TANDEM_CORE_BASE_CACHE_LINE_H_

#include <cstddef>

namespace tandem {

inline constexpr size_t kCacheLineBytes = 64;  // on x86-64 and most ARM64

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_CACHE_LINE_H_
