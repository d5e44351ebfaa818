// Memory use of a device, by category.

#ifndef TANDEM_CORE_MEMORY_MEMORY_USE_H_
#define TANDEM_CORE_MEMORY_MEMORY_USE_H_

#include <array>
#include <cstdint>
#include <string>

#include "core/device/memory_category.h"

namespace tandem {

// Bytes in use, by category (index: MemoryCategory) and together.
struct MemoryUse {
  int64_t total = 0;
  std::array<int64_t, kMemoryCategories> by_category = {};

  // `bytes` more of `category`; fewer if negative.
  void Add(MemoryCategory category, int64_t bytes) {
    total += bytes;
    by_category[static_cast<size_t>(category)] += bytes;
  }
};

struct MemoryBooks {
  MemoryUse now;
  // When the most was in use, and what it was for then.
  MemoryUse peak;

  // Call when `now` has grown.
  void NotePeak() {
    if (now.total > peak.total) peak = now;
  }
};

// "parameters 40 MiB, activations 3.5 MiB": what there is, most first.
std::string DescribeUse(const MemoryUse& use);

}  // namespace tandem

#endif  // TANDEM_CORE_MEMORY_MEMORY_USE_H_
