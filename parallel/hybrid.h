// Hybrid, which lives in the room parallel/strategy.

#ifndef TANDEM_PARALLEL_HYBRID_H_
#define TANDEM_PARALLEL_HYBRID_H_

#include "parallel/strategy/hybrid.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_HYBRID_H_
