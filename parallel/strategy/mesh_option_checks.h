// Checks of a MeshStrategy's options, by themselves: a part of it.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_OPTION_CHECKS_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_OPTION_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "parallel/step/mesh_strategy_options.h"

namespace tandem {

// InvalidArgument, naming the options, for a value that is out of its range,
// and for options that exclude each other.
absl::Status CheckMeshOptions(const MeshStrategyOptions& options);

// What of these replicas cannot share the optimizer with, for a person; empty:
// nothing.
std::string ExcludesSharding(const MeshStrategyOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_OPTION_CHECKS_H_
