#include "core/device/memory_category.h"

namespace tandem {
namespace {

thread_local MemoryCategory current = MemoryCategory::kOther;

}  // namespace

absl::string_view MemoryCategoryName(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kOther:
      return "other";
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizer:
      return "optimizer";
    case MemoryCategory::kActivations:
      return "activations";
    case MemoryCategory::kTemporaries:
      return "temporaries";
  }
  return "unknown";
}

MemoryCategoryScope::MemoryCategoryScope(MemoryCategory category)
    : outer_(current) {
  current = category;
}

MemoryCategoryScope::~MemoryCategoryScope() { current = outer_; }

MemoryCategory CurrentMemoryCategory() { return current; }

}  // namespace tandem
