#include "core/device/memory_category.h"

#include <torch/csrc/autograd/graph_task.h>

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

MemoryCategory CategoryOfResults() {
  const MemoryCategory named = CurrentMemoryCategory();
  if (named != MemoryCategory::kOther) return named;
  return torch::autograd::get_current_graph_task_id() == -1
             ? MemoryCategory::kOther
             : MemoryCategory::kGradients;
}

}  // namespace tandem
