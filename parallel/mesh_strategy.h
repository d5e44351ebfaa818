// Mesh strategy, which lives in the room parallel/strategy.

#ifndef TANDEM_PARALLEL_MESH_STRATEGY_H_
#define TANDEM_PARALLEL_MESH_STRATEGY_H_

#include "parallel/strategy/mesh_strategy.h"  // IWYU pragma: export

#endif  // TANDEM_PARALLEL_MESH_STRATEGY_H_
