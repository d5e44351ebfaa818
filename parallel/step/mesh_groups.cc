#include "parallel/step/mesh_groups.h"

#include <glog/logging.h>

#include <cstddef>
#include <numeric>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {

namespace {

// Can it carry what the device has?
bool Serves(const Communicator& group, c10::Device device) {
  return !group.backend_names().HasStreams(device.type()) ||
         group.device() == device;
}

// The group of some of the world's ranks, this one among them: all of them need
// none, and one alone has none.
absl::StatusOr<Communicator*> GroupOf(const std::vector<int>& ranks,
                                      const std::string& name,
                                      Communicator& world,
                                      std::unique_ptr<Communicator>& own) {
  if (ranks.size() == 1) return nullptr;
  if (static_cast<int>(ranks.size()) == world.size()) return &world;
  TANDEM_ASSIGN_OR_RETURN(own, world.Subgroup(ranks, name));
  return own.get();
}

// ", part 1": which of a layer's parts, where layers have parts.
std::string PartText(const Mesh& mesh, int rank) {
  if (mesh.degree(kTensorAxis) == 1) return "";
  return absl::StrCat(", part ", mesh.IndexAlong(kTensorAxis, rank));
}

}  // namespace

absl::StatusOr<MeshGroups> MeshGroups::Create(
    Communicator* world, const Mesh& mesh,
    const std::map<int, c10::Device>& stages) {
  MeshGroups groups;
  groups.stages_ = stages;
  if (world == nullptr || world->size() == 1) return groups;
  CHECK_EQ(world->size(), mesh.world_size());
  const int rank = world->rank();
  groups.world_ = world;
  groups.mesh_ = mesh;
  groups.replica_ = mesh.ReplicaIndex(rank);
  const std::string part = PartText(mesh, rank);
  TANDEM_ASSIGN_OR_RETURN(
      groups.pipe_,
      GroupOf(mesh.RanksAlong({kPipeAxis}, rank),
              absl::StrCat("pipeline of replica ", groups.replica_, part),
              *world, groups.own_pipe_));
  TANDEM_ASSIGN_OR_RETURN(
      groups.scores_,
      GroupOf(mesh.RanksAlong({kDataAxis, kShardAxis, kPipeAxis}, rank),
              absl::StrCat("replicas' pipelines", part), *world,
              groups.own_scores_));
  TANDEM_ASSIGN_OR_RETURN(
      groups.parts_,
      GroupOf(mesh.RanksAlong({kTensorAxis}, rank),
              absl::StrCat("parts of rank ",
                           rank - mesh.IndexAlong(kTensorAxis, rank)),
              *world, groups.own_parts_));
  if (groups.parts_ != nullptr) {
    const std::vector<int> holders =
        mesh.RanksAlong({kDataAxis, kShardAxis, kTensorAxis}, rank);
    for (const auto& stage : stages) {
      SubgroupOptions own;
      own.device = stage.second;
      TANDEM_ASSIGN_OR_RETURN(
          groups.holders_[stage.first],
          world->Subgroup(holders,
                          absl::StrCat("holders of stage ", stage.first), own));
    }
  }
  if (mesh.replicas() == 1) return groups;
  groups.ranks_of_replicas_ = mesh.RanksOfReplicas(rank);
  // One stage needs no group beside the ranks' own.
  if (mesh.ranks_of_replica() == 1 && stages.size() == 1 &&
      Serves(*world, stages.begin()->second)) {
    return groups;
  }
  for (const auto& stage : stages) {
    TANDEM_ASSIGN_OR_RETURN(groups.data_[stage.first],
                            groups.MakeStageGroup(stage.first, "replicas",
                                                  groups.ranks_of_replicas_));
  }
  return groups;
}

absl::StatusOr<std::unique_ptr<Communicator>> MeshGroups::MakeStageGroup(
    int stage, const char* what, const std::vector<int>& ranks) const {
  SubgroupOptions own;
  own.device = stages_.at(stage);
  return world_->Subgroup(
      ranks,
      absl::StrCat(what, " of stage ", stage, PartText(mesh_, world_->rank())),
      own);
}

Communicator* MeshGroups::data(int stage) const {
  if (replicas() == 1) return nullptr;
  return data_.empty() ? world_ : data_.at(stage).get();
}

Communicator* MeshGroups::alike(int stage,
                                const ParameterTraits& traits) const {
  const bool on_replicas = traits.is_alike_along(kDataAxis);
  if (parts_ == nullptr || !traits.is_alike_along(kTensorAxis)) {
    return on_replicas ? data(stage) : nullptr;
  }
  return on_replicas ? holders_.at(stage).get() : parts_;
}

absl::StatusOr<Communicator*> MeshGroups::MakeParts(int stage,
                                                    const char* what) {
  SubgroupOptions own;
  own.device = stages_.at(stage);
  TANDEM_ASSIGN_OR_RETURN(
      further_.emplace_back(),
      world_->Subgroup(mesh_.RanksAlong({kTensorAxis}, world_->rank()),
                       absl::StrCat(what, " of stage ", stage), own));
  return further_.back().get();
}

absl::StatusOr<Communicator*> MeshGroups::MakeStatistics(int stage) {
  CHECK_GT(replicas(), 1);
  return MakeFurther(stage, "statistics", ranks_of_replicas_);
}

absl::StatusOr<Communicator*> MeshGroups::MakeFurther(
    int stage, const char* what, const std::vector<int>& ranks) {
  TANDEM_ASSIGN_OR_RETURN(further_.emplace_back(),
                          MakeStageGroup(stage, what, ranks));
  return further_.back().get();
}

absl::StatusOr<MeshGroups::Shards> MeshGroups::MakeShards(int stage) {
  CHECK_GT(mesh_.degree(kShardAxis), 1);
  const std::vector<int> sharers =
      mesh_.RanksAlong({kShardAxis}, world_->rank());
  Shards shards;
  TANDEM_ASSIGN_OR_RETURN(shards.gathers,
                          MakeFurther(stage, "gathering shards", sharers));
  if (mesh_.degree(kDataAxis) == 1) {
    shards.reduces = data(stage);
    return shards;
  }
  TANDEM_ASSIGN_OR_RETURN(shards.reduces,
                          MakeFurther(stage, "shards", sharers));
  TANDEM_ASSIGN_OR_RETURN(
      shards.copies,
      MakeFurther(stage, "copies of a shard",
                  mesh_.RanksAlong({kDataAxis}, world_->rank())));
  return shards;
}

absl::StatusOr<Communicator*> MeshGroups::MakeDevices(c10::Device device) {
  CHECK(world_ != nullptr);
  std::vector<int> all(static_cast<size_t>(world_->size()));
  std::iota(all.begin(), all.end(), 0);
  SubgroupOptions own;
  own.device = device;
  TANDEM_ASSIGN_OR_RETURN(devices_, world_->Subgroup(all, "devices", own));
  return devices_.get();
}

std::vector<Communicator*> MeshGroups::All() const {
  if (world_ == nullptr) return {};
  std::vector<Communicator*> groups = {world_};
  if (devices_ != nullptr) groups.push_back(devices_.get());
  for (const auto* own : {&own_pipe_, &own_scores_, &own_parts_}) {
    if (*own != nullptr) groups.push_back(own->get());
  }
  for (const auto* some : {&data_, &holders_}) {
    for (const auto& each : *some) groups.push_back(each.second.get());
  }
  for (const auto& each : further_) groups.push_back(each.get());
  return groups;
}

absl::Status MeshGroups::Synchronize() const {
  absl::Status all;
  for (Communicator* group : All()) all.Update(group->Synchronize());
  return all;
}

absl::Status MeshGroups::SynchronizeReplicas() const {
  absl::Status all;
  for (const auto& each : data_) all.Update(each.second->Synchronize());
  return all;
}

void MeshGroups::Abort(const absl::Status& reason) {
  // All at once: each takes seconds if the store has gone.
  std::vector<std::thread> threads;
  for (Communicator* group : All()) {
    threads.emplace_back([group, &reason] { group->Abort(reason); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem
