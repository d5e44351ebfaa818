// The mesh strategy under an earlier name.

#ifndef TANDEM_PARALLEL_HYBRID_H_
#define TANDEM_PARALLEL_HYBRID_H_

#include "parallel/strategy/mesh_strategy.h"  // IWYU pragma: export

namespace tandem {

using Hybrid = MeshStrategy;
using HybridOptions = MeshStrategyOptions;

}  // namespace tandem

#endif  // TANDEM_PARALLEL_HYBRID_H_
