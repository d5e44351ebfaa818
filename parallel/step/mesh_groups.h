// Process groups of a mesh: who talks to whom in a mesh of replicas, each of
// them a pipeline.

#ifndef TANDEM_PARALLEL_STEP_MESH_GROUPS_H_
#define TANDEM_PARALLEL_STEP_MESH_GROUPS_H_

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/mesh/mesh.h"
#include "core/model/parameter_traits.h"

namespace tandem {

// The communicators of one rank: with the other ranks of its pipeline, and for
// each stage that it holds with that stage's other replicas (all ranks, where
// each has the one stage and they serve its device), and with those that have
// other samples or stages than it. The former carry tensors
// of the host alone, the latter those of the stage's device as well. Each is
// used in an order that the schedule fixes, so no two of them can wait for each
// other.
class MeshGroups {
 public:
  // `world` has the mesh's ranks (null: one) and must outlive this. `stages`
  // are this rank's, the same ones on every replica, with their devices.
  // Collective.
  static absl::StatusOr<MeshGroups> Create(
      Communicator* world, const Mesh& mesh,
      const std::map<int, c10::Device>& stages);

  // Null for one rank.
  Communicator* world() const { return world_; }
  // The group of this rank's pipeline; null for one rank.
  Communicator* pipe() const { return pipe_; }
  // Whether a stage is one of this rank's.
  bool holds(int stage) const { return stages_.count(stage) > 0; }
  // The group of a stage's replicas; null for one replica. Requires one of
  // `stages`.
  Communicator* data(int stage) const;
  // The group of the ranks that have the same values of a parameter of such
  // traits (ParameterTraits::is_alike_along) in the stage; null: no other has.
  Communicator* alike(int stage, const ParameterTraits& traits) const;
  // Another group of the stage's replicas, for the statistics of its layers:
  // their order is the schedule's, that of gradients another. Requires several
  // replicas. Collective over them.
  absl::StatusOr<Communicator*> MakeStatistics(int stage);
  // Groups of the replicas that share a stage, for what they gather and what
  // they reduce, whose orders have nothing to do with each other, and of those
  // that have the same share (null: there are none). Requires several ranks
  // along the shard axis. Collective over the stage's replicas.
  struct Shards {
    Communicator* gathers = nullptr;
    Communicator* reduces = nullptr;
    Communicator* copies = nullptr;
  };
  absl::StatusOr<Shards> MakeShards(int stage);
  // Another group of all ranks, for what their devices tell each other on
  // streams within a step. Requires several ranks. Collective.
  absl::StatusOr<Communicator*> MakeDevices(c10::Device device);
  // The ranks whose numbers of a step, summed, count each sample and stage
  // once: all, but for those that have other parts of this rank's tensors. Null
  // for one rank.
  Communicator* scores() const { return scores_; }
  // The ranks that have the other parts of this rank's tensors, for what they
  // add up on the host; null: it has all of them.
  Communicator* parts() const { return parts_; }
  // The same for one stage, on its device and by its thread; `what` they do
  // there. Requires several ranks along the tensor axis. Collective over them.
  absl::StatusOr<Communicator*> MakeParts(int stage, const char* what);
  const Mesh& mesh() const { return mesh_; }
  // Which replica this rank belongs to.
  int replica() const { return replica_; }
  int replicas() const { return mesh_.replicas(); }

  // Communicator's, of all of them.
  absl::Status Synchronize() const;
  // Synchronizes the groups that average gradients, beside the ranks' own.
  absl::Status SynchronizeReplicas() const;
  // Nobody shall wait for this rank.
  void Abort(const absl::Status& reason);

 private:
  std::vector<Communicator*> All() const;
  absl::StatusOr<std::unique_ptr<Communicator>> MakeStageGroup(
      int stage, const char* what, const std::vector<int>& ranks) const;
  absl::StatusOr<Communicator*> MakeFurther(int stage, const char* what,
                                            const std::vector<int>& ranks);

  Communicator* world_ = nullptr;
  Communicator* pipe_ = nullptr;
  Communicator* scores_ = nullptr;
  Communicator* parts_ = nullptr;
  Mesh mesh_;
  int replica_ = 0;
  std::unique_ptr<Communicator> own_pipe_, own_scores_, own_parts_;
  std::map<int, c10::Device> stages_;
  std::vector<int> ranks_of_replicas_;
  // By stage: its replicas, and all that have it, in parts or whole.
  std::map<int, std::unique_ptr<Communicator>> data_, holders_;
  // For more of what a stage's replicas do with each other.
  std::vector<std::unique_ptr<Communicator>> further_;
  std::unique_ptr<Communicator> devices_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_MESH_GROUPS_H_
