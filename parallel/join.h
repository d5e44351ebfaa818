// Join for uneven inputs, which lives in the room parallel/join.

#ifndef TANDEM_PARALLEL_JOIN_H_
#define TANDEM_PARALLEL_JOIN_H_

#include "parallel/join/join.h"                   // IWYU pragma: export
#include "parallel/strategy/joinable_strategy.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_JOIN_H_
