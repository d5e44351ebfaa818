#include "core/context/compute_context.h"

namespace tandem {

ComputeContext& ComputeContext::Current() {
  thread_local ComputeContext current;
  return current;
}

}  // namespace tandem
