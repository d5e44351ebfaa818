// Memory category: what memory is for, said by whoever allocates it.

#ifndef TANDEM_CORE_DEVICE_MEMORY_CATEGORY_H_
#define TANDEM_CORE_DEVICE_MEMORY_CATEGORY_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tandem {

enum class MemoryCategory : uint8_t {
  kOther,
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kTemporaries,  // an operator's own, while it runs
};

constexpr int kMemoryCategories = 6;

// "parameters", "gradients", ...
absl::string_view MemoryCategoryName(MemoryCategory category);

// What the calling thread allocates while this object lives counts as
// `category`. Scopes nest. A device that keeps statistics (core/sim) asks for
// it; elsewhere it costs two stores.
class MemoryCategoryScope {
 public:
  explicit MemoryCategoryScope(MemoryCategory category);
  ~MemoryCategoryScope();
  MemoryCategoryScope(const MemoryCategoryScope&) = delete;
  MemoryCategoryScope& operator=(const MemoryCategoryScope&) = delete;

 private:
  const MemoryCategory outer_;
};

// The calling thread's innermost scope; kOther outside of all.
MemoryCategory CurrentMemoryCategory();

// The category of an operator's results: that of the thread's scope; without
// one, gradients inside of a backward and kOther elsewhere.
MemoryCategory CategoryOfResults();

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_MEMORY_CATEGORY_H_
