// Replicated strategies, which live in the room parallel/strategy.

#ifndef TANDEM_PARALLEL_REPLICATED_H_
#define TANDEM_PARALLEL_REPLICATED_H_

#include "parallel/strategy/replicated.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_REPLICATED_H_
