#include "core/model/parameter_traits.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/mesh/mesh.h"

namespace tandem {

bool ParameterTraits::reduces_over(absl::string_view axis) const {
  return absl::c_linear_search(reduce_axes, axis);
}

bool ParameterTraits::is_alike_along(absl::string_view axis) const {
  if (axis == kPipeAxis) return false;
  if (shard.has_value() && shard->axis == axis) return false;
  return !IsSampleAxis(axis) || reduces_over(kDataAxis);
}

ParameterTraits EffectiveTraits(const TraitsByName& traits,
                                const std::string& name) {
  const auto found = traits.find(name);
  return found == traits.end() ? ParameterTraits() : found->second;
}

ParameterTraits WithPlace(ParameterTraits said, const ParameterTraits& place) {
  const ParameterTraits usual;
  if (place.shard.has_value()) said.shard = place.shard;
  for (const std::string& axis : place.reduce_axes) {
    if (!usual.reduces_over(axis) && !said.reduces_over(axis)) {
      said.reduce_axes.push_back(axis);
    }
  }
  return said;
}

std::string Describe(const ParameterTraits& traits) {
  std::string text =
      traits.reduce_axes.empty()
          ? "not reduced"
          : absl::StrCat("reduced over ",
                         absl::StrJoin(traits.reduce_axes, " and "));
  if (traits.shard.has_value()) {
    absl::StrAppend(&text, ", dimension ", traits.shard->dim, " sharded along ",
                    traits.shard->axis);
    if (traits.shard->blocks > 1) {
      absl::StrAppend(&text, " in ", traits.shard->blocks, " blocks");
    }
    if (traits.shard->uneven_size > 0) {
      absl::StrAppend(&text, ", of ", traits.shard->uneven_size);
    }
  }
  absl::StrAppend(&text, ", group ", traits.optimizer_group);
  return text;
}

}  // namespace tandem
