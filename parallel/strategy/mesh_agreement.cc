#include "parallel/strategy/mesh_agreement.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/comm/group_agreement.h"
#include "core/model/parameter_traits.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/strategy/stage/trait_checks.h"

namespace tandem {
namespace {

std::string LayersOf(const LayerSpecs& specs) {
  return absl::StrJoin(specs, ", ", [](std::string* out, const auto& layer) {
    absl::StrAppend(out, layer.name, " (", layer.type, ")");
  });
}

}  // namespace

NamedValues MeshStrategyValues(const LayerSpecs& specs,
                               const LossFunction& loss,
                               const MeshStrategyOptions& options) {
  NamedValues values;
  DescribeStepParts(options, values);
  values["layers"] = LayersOf(specs);
  values["parameters' traits"] = absl::StrJoin(
      NamedTraits(specs), "; ", [](std::string* out, const auto& each) {
        absl::StrAppend(out, each.first, " ", Describe(each.second));
      });
  values["loss's outputs"] = absl::StrJoin(loss.names().outputs, ",");
  values["loss's targets"] = absl::StrJoin(loss.names().targets, ",");
  return values;
}

absl::Status CheckSameOptions(const LayerSpecs& specs, const LossFunction& loss,
                              const MeshStrategyOptions& options,
                              Communicator* world) {
  if (world == nullptr || world->size() == 1) return absl::OkStatus();
  return AgreeInGroup(MeshStrategyValues(specs, loss, options),
                      "models and options", *world);
}

}  // namespace tandem
