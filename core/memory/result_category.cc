#include "core/memory/result_category.h"

#include <torch/csrc/autograd/graph_task.h>

namespace tandem {

MemoryCategory CategoryOfResults() {
  const MemoryCategory named = CurrentMemoryCategory();
  if (named != MemoryCategory::kOther) return named;
  return torch::autograd::get_current_graph_task_id() == -1
             ? MemoryCategory::kOther
             : MemoryCategory::kGradients;
}

}  // namespace tandem
