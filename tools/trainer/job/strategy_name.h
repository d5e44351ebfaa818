// Strategy by name: which of them a mesh asks for, or takes.

#ifndef TANDEM_TOOLS_TRAINER_JOB_STRATEGY_NAME_H_
#define TANDEM_TOOLS_TRAINER_JOB_STRATEGY_NAME_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/mesh/mesh.h"

namespace tandem {

// The name of the strategy that a mesh asks for, when every rank has
// `devices_per_rank` devices:
//
//   a replica has               one replica      several replicas
//   one device                  single           ddp
//   several, all of one rank    model_parallel   ddp
//   several ranks (pipe > 1)    pipeline         hybrid
//
// "single", "model_parallel" and "ddp" run a replica's devices one after the
// other, "pipeline" and "hybrid" all at once, on microbatches. `requested`
// overrides it, where the mesh allows: "pipeline" wherever one replica has
// several devices, "hybrid" everywhere, "ddp" for one rank too, and
// "data_parallel", for which each device has a replica, wherever a rank that is
// no part of a pipeline has several devices.
// Empty or "auto" asks for none. InvalidArgument for an unknown name, or one
// that contradicts the mesh.
absl::StatusOr<std::string> StrategyFor(const Mesh& mesh, int devices_per_rank,
                                        absl::string_view requested);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_STRATEGY_NAME_H_
