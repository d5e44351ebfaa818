// Replica parameters: parameters and buffers of one replica, of a module
// (DistributedDataParallel) or of a pipeline's stage, and what makes and keeps
// them alike on all replicas.

#ifndef TANDEM_PARALLEL_DDP_REPLICA_PARAMETERS_H_
#define TANDEM_PARALLEL_DDP_REPLICA_PARAMETERS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/comm/communicator.h"
#include "core/model/parameter_traits.h"
#include "parallel/ddp/options.h"
#include "parallel/ddp/reducer.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Names are full ones; of a tensor that has several it is the first
// (WithFirstNames).
struct ReplicaParameterOptions {
  // Its optimizer_group goes before the traits' groups.
  DistributedDataParallelOptions ddp;
  TraitsByName traits;
  // For each of the parameters that is a copy of another stage's tied weight,
  // the name of the weight's first member.
  std::map<std::string, std::string> first_of_copy;
  // Values lie where gradients do: in memory of the group.
  bool shares_values = false;
  // These are to be sharded among so many ranks, in units by name
  // (parallel/fully_sharded).
  std::map<std::string, size_t> unit_of;
  int shards = 1;
  // They are moved there, unit after unit, each of which is then sharded so.
  c10::Device device = c10::kCPU;
  std::function<absl::Status(FlatBuffer& buffer)> shard;
  // The group of the ranks that have the same values of a parameter of such
  // traits, the same traits having the same group on all of them; null: no
  // other rank has. Buffers have the usual traits. Empty: the replicas are the
  // group, of what they do not train each for itself.
  std::function<Communicator*(const ParameterTraits& traits)> alike_group;
};

// Five kinds of parameters lie in flat buffers of their own: what is to be
// sharded, what is averaged as backward comes to it, what waits for another
// parameter to be averaged, what is each replica's own (parameters_to_ignore),
// and copies of tied weights of other stages. Their order is that of the kinds.
// Not thread-safe.
class ReplicaParameters {
 public:
  // Moves `parameters` into flat buffers. `replicas`, in whose memory the
  // gradients lie, must outlive this; null: there are no others, and nothing
  // below that is collective does anything. Errors: NewGroupBuffer's, and
  // LibTorch's.
  static absl::StatusOr<std::unique_ptr<ReplicaParameters>> Create(
      const NamedTensors& parameters, const NamedTensors& buffers,
      ReplicaParameterOptions options, Communicator* replicas);
  ReplicaParameters(const ReplicaParameters&) = delete;
  ReplicaParameters& operator=(const ReplicaParameters&) = delete;

  const FlatBuffers& flat_buffers() const { return flat_; }
  // The same without ownership; and all but the copies, which count once in a
  // norm.
  FlatBufferList all() const;
  FlatBufferList own() const;
  // All whose gradients are averaged over replicas.
  FlatBufferList averaged() const;
  // Buffers of parameters_to_ignore; and those of one of the optimizer's
  // groups.
  FlatBufferList ignored() const;
  FlatBufferList of_group(int64_t group) const;

  // Running statistics, say; those that replicas have alike.
  const std::vector<at::Tensor>& buffers() const { return buffers_; }
  Communicator* replicas() const { return replicas_; }
  // Is a parameter or buffer each replica's own?
  bool is_ignored(const std::string& name) const;

  // What averages gradients over the replicas, which there must be, from now
  // on. Buckets are those of the options.
  std::unique_ptr<Reducer> MakeReducer(
      std::function<void()> on_begin = nullptr) const;
  // Buffers that are to be sharded.
  std::vector<FlatBuffer*> sharded() const;
  // Gradients that are averaged as backward comes to them, by whoever does it
  // otherwise; and those that wait for another.
  std::vector<FlatBuffer*> averaged_at_once() const;
  std::vector<FlatBuffer*> averaged_late() const;

  // Every replica takes all that replicas have alike from `root`: values, what
  // optimizers keep of them (FlatBuffer::TakeState), parameters that are not
  // trained, and buffers. With an `alike_group`, every rank of it from its
  // first, which `root` must be. Collective. `purpose` is of what is trained.
  absl::Status TakeFrom(int root,
                        const CollectivePurpose& purpose = nullptr) const;
  // Every replica's buffers become those of `root`. Collective.
  absl::Status BroadcastBuffers(int root = 0) const;

  // Picks those of the given parameters that all replicas have alike: not those
  // that each trains for itself.
  NamedTensors SelectAlike(const NamedTensors& parameters) const;

  const std::map<std::string, std::string>& first_of_copy() const {
    return options_.first_of_copy;
  }
  // Optimizer state by "PARAMETER.STATE": copies have that of their weight's
  // first member, so they are left out here, and given it below.
  NamedTensors WithoutCopies(NamedTensors state) const;
  // Picks what is of these parameters from `state`, the whole model's or part
  // of it.
  StoredTensors SelectState(const StoredTensors& state) const;

 private:
  enum class Kind { kSharded, kAtOnce, kDelayed, kIgnored, kCopies };

  ReplicaParameters(ReplicaParameterOptions options, Communicator* replicas);

  absl::Status Flatten(const NamedTensors& parameters);
  absl::Status FlattenSharded(const NamedTensors& parameters);
  Kind ParameterKind(const std::string& name) const;
  const std::string& FirstOfCopy(const std::string& name) const;
  ParameterTraits TraitsFor(const std::string& name) const;
  std::vector<FlatBuffer*> SelectBuffers(
      std::initializer_list<Kind> kinds) const;
  std::vector<FlatBuffer*> Averaged(std::initializer_list<Kind> kinds) const;
  // The ranks that have a buffer's values alike; null: no other has.
  Communicator* AlikeGroup(const FlatBuffer& buffer) const;

  const ReplicaParameterOptions options_;
  Communicator* const replicas_;
  FlatBuffers flat_;
  std::vector<Kind> kinds_;  // of these
  NamedTensors frozen_;      // parameters that are alike, not trained
  std::vector<at::Tensor> buffers_;
  ReducerOptions reducer_options_;  // but for what the flat buffers say
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REPLICA_PARAMETERS_H_
