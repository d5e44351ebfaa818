#include "parallel/strategy/owned_state.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/model/parameter_shard.h"
#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

// The parameter that a tensor of a checkpoint belongs to.
std::string OwnerName(const std::string& name) {
  return IsOptimizerStateName(name) ? ParameterName(OptimizerStateName(name))
                                    : name;
}

// The shard of a parameter that a tensor of it, of so many dimensions, is.
const ShardOfParameter* ShardOfState(const ShardsByName& shards,
                                     const std::string& parameter,
                                     int64_t dims) {
  if (dims == 0) return nullptr;
  const auto found = shards.find(parameter);
  return found == shards.end() ? nullptr : &found->second;
}

}  // namespace

absl::StatusOr<ShardsByName> FindShards(const NamedTensors& parameters,
                                        const TraitsByName& traits,
                                        const Mesh& mesh, int rank) {
  ShardsByName shards;
  std::map<const c10::TensorImpl*, ParameterTraits> traits_of;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined()) continue;  // it has no value yet
    const auto own = traits_of.emplace(tensor.unsafeGetTensorImpl(),
                                       EffectiveTraits(traits, name));
    const auto& shard = own.first->second.shard;
    if (!shard.has_value() || mesh.degree(shard->axis) == 1) continue;
    const int64_t degree = mesh.degree(shard->axis);
    TANDEM_ASSIGN_OR_RETURN(
        std::vector<int64_t> sizes,
        WholeSizes(name, tensor.sizes().vec(), *shard, degree));
    TANDEM_ASSIGN_OR_RETURN(TensorShard ranges,
                            RankShard(name, sizes, *shard, degree,
                                      mesh.IndexAlong(shard->axis, rank)));
    shards[name] = {shard->axis, std::move(sizes), std::move(ranges)};
  }
  return shards;
}

StatePart OwnedState(const NamedTensors& state, const OwnerPlace& place) {
  StatePart owned;
  for (const auto& [name, tensor] : state) {
    const ShardOfParameter* const part =
        ShardOfState(place.shards, OwnerName(name), tensor.dim());
    std::vector<absl::string_view> differs = {kPipeAxis};
    if (part != nullptr) differs.push_back(part->axis);
    if (!place.mesh.IsFirstBeside(differs, place.rank)) continue;
    owned.tensors.emplace_back(name, tensor);
    if (part == nullptr) continue;
    owned.slices[name] = SliceOfShard(part->sizes, part->shard);
  }
  return owned;
}

StatePart OwnedShare(const StatePart& share, SharedNames names,
                     const std::vector<absl::string_view>& axes,
                     const OwnerPlace& place) {
  const bool is_state = names == SharedNames::kStates;
  StatePart owned;
  for (const auto& [name, tensor] : share.tensors) {
    const ShardOfParameter* const part = ShardOfState(
        place.shards, is_state ? ParameterName(name) : name, tensor.dim());
    std::vector<absl::string_view> differs = axes;
    differs.push_back(kPipeAxis);
    if (part != nullptr) differs.push_back(part->axis);
    if (!place.mesh.IsFirstBeside(differs, place.rank)) continue;
    const std::string stored = is_state ? CheckpointNameOfState(name) : name;
    owned.tensors.emplace_back(stored, tensor);
    const auto slice = share.slices.find(name);
    if (slice == share.slices.end()) continue;
    TensorSlice& placed = owned.slices[stored] = slice->second;
    if (part == nullptr) continue;
    placed.sizes = part->sizes;
    placed.shard = part->shard;
  }
  return owned;
}

absl::StatusOr<StoredTensors> ShardsToLoad(
    const StoredTensors& state, const ShardsByName& shards,
    absl::FunctionRef<std::string(const std::string&)> parameter_of) {
  StoredTensors mine;
  for (const StoredTensor& each : state) {
    const std::vector<int64_t>& sizes = each.info.sizes;
    const ShardOfParameter* const part =
        ShardOfState(shards, parameter_of(each.info.name),
                     static_cast<int64_t>(sizes.size()));
    if (part == nullptr) {
      mine.Add(each);
      continue;
    }
    if (sizes != part->sizes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "state ", each.info.name, ": expected shape [",
          absl::StrJoin(part->sizes, ", "), "], of which ranks along ",
          part->axis, " have a part each, got [", absl::StrJoin(sizes, ", "),
          "]"));
    }
    mine.Add(StoredShard(each, part->shard));
  }
  for (const std::string& each : state.kept()) mine.Keep(each);
  return mine;
}

}  // namespace tandem
