#include "parallel/strategy/stage/trait_checks.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::Status CheckAxis(const std::string& parameter, const std::string& axis,
                       const Mesh& mesh) {
  const bool is_there = absl::c_any_of(
      mesh.axes(), [&](const MeshAxis& each) { return each.name == axis; });
  if (is_there) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", parameter, " has a trait along axis '", axis,
                   "', but the mesh is ", mesh.ToString()));
}

absl::Status CheckOne(const std::string& parameter,
                      const ParameterTraits& traits, const Mesh& mesh) {
  for (const std::string& axis : traits.reduce_axes) {
    TANDEM_RETURN_IF_ERROR(CheckAxis(parameter, axis, mesh));
  }
  if (traits.reduces_over(kPipeAxis)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the gradient of parameter ", parameter,
        " cannot be reduced along the pipeline: each of its ranks has other "
        "parameters (tie weights that lie in several layers: "
        "LayerLinks::ties)"));
  }
  if (!traits.shard.has_value()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckAxis(parameter, traits.shard->axis, mesh));
  if (mesh.degree(traits.shard->axis) == 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "parameter ", parameter, " is sharded along ", traits.shard->axis,
      ", which has ", mesh.degree(traits.shard->axis),
      " ranks: no strategy shards parameters yet"));
}

}  // namespace

TraitsByName NamedTraits(const LayerSpecs& specs) {
  TraitsByName all;
  for (const LayerSpec& spec : specs) {
    for (const auto& [name, traits] : spec.traits) {
      all[absl::StrCat(spec.name, ".", name)] = traits;
    }
  }
  return all;
}

absl::Status CheckTraits(const TraitsByName& traits, const Mesh& mesh) {
  for (const auto& [name, its] : traits) {
    TANDEM_RETURN_IF_ERROR(CheckOne(name, its, mesh));
  }
  return absl::OkStatus();
}

absl::Status CheckAllAreReduced(const TraitsByName& traits, const Mesh& mesh,
                                absl::string_view what) {
  if (mesh.data() == 1) return absl::OkStatus();
  for (const auto& [name, its] : traits) {
    if (its.reduces_over(kDataAxis)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of parameter ", name,
                     " is not reduced over replicas, which does not go with ",
                     what, ": leave one of the two out"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
