// Memory category of an operator's results.

#ifndef TANDEM_CORE_MEMORY_RESULT_CATEGORY_H_
#define TANDEM_CORE_MEMORY_RESULT_CATEGORY_H_

#include "core/device/memory_category.h"

namespace tandem {

// The thread's MemoryCategoryScope; without one, gradients inside of a backward
// and kOther elsewhere.
MemoryCategory CategoryOfResults();

}  // namespace tandem

#endif  // TANDEM_CORE_MEMORY_RESULT_CATEGORY_H_
