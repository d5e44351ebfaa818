#include "parallel/strategy/replicated.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Strategy>> MakeReplicated(
    const LayerList& layers, const LossFunction& loss,
    const ReplicatedOptions& options, Communicator& data) {
  if (options.accumulation_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("accumulation_steps must be at least 1, but ",
                     options.accumulation_steps, " was given"));
  }
  MeshStrategyOptions mesh;
  static_cast<UpdateOptions&>(mesh) = options;
  TANDEM_ASSIGN_OR_RETURN(
      mesh.schedule,
      SequentialSchedule(1, static_cast<int>(options.accumulation_steps)));
  mesh.devices = {options.device};
  mesh.ddp = options.ddp;
  mesh.averaging = options.averaging;
  mesh.seed = options.seed;
  if (options.hook) {
    mesh.make_hook = [hook = options.hook] { return hook; };
  }
  return MeshStrategy::Create(SpecsFromLayers(layers), loss, mesh, &data);
}

}  // namespace tandem
