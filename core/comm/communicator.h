// Ranks that talk to each other: a c10d process group, errors as Status.

#ifndef TANDEM_CORE_COMM_COMMUNICATOR_H_
#define TANDEM_CORE_COMM_COMMUNICATOR_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/backend/backend_names.h"
#include "core/backend/communicator_options.h"
#include "core/comm/pending_collective.h"
#include "core/launch/launch.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace tandem {

// A message between two ranks of a group. Matched by its tag (0 or more) and,
// of one tag, by the order of sending; on streams, where there are no tags, by
// the order alone. Both sides' tensors have as many bytes.
struct RankMessage {
  bool sends = false;
  at::Tensor tensor;
  int peer = 0;  // another rank than this one
  int tag = 0;
};

class CollectiveRunner;

// A group of ranks. Every collective must be called by all of them in the same
// order; it blocks until it is done and returns
//   DeadlineExceeded when others did not come within the timeout,
//   Unavailable when a connection to another rank broke,
//   Aborted when another rank gave up (Abort), with its reason,
//   InvalidArgument for a tensor that it does not take,
// with a message that names the operation, what it is for, this rank and the
// group, and the ranks that were not heard of. After the first three, and a
// disagreement that `check_collectives` found, the group is of no more use:
// every later collective returns the same error at once.
//
// A group of one rank answers at once and opens no connection; so does any
// group for a tensor without elements. Tensors are dense, contiguous, of the
// same shape and dtype on every rank (checked only with `check_collectives`),
// on the CPU, or on a device of the group's where its backend has one for
// those; CommunicatorOptions::stages_on_host takes any device's.
//
// With such a backend (sim_nccl, nccl) a device's tensors are worked on by
// streams, and waiting orders the calling thread's stream, not the host. The
// host learns of errors with the next call that begins, or by Synchronize().
//
// One thread at a time issues collectives; messages may be started, at any
// time, and anything waited for, by any thread.
//
// All-gathers into one tensor, reduce-scatters and all-to-alls are functions:
// core/comm/partitioned_collectives.h.
class Communicator {
 public:
  // All ranks of a job, named "world", through the store that
  // `launch.rendezvous` asks for. `options.all_local` and `master_host` are
  // taken from `launch`. TORCH_DISTRIBUTED_DEBUG=DETAIL in the environment
  // turns `options.check_collectives` on.
  //
  // Such a job's ranks share their fate: when one fails in this group or a
  // subgroup, whoever waits in another one fails, too, within a second.
  static absl::StatusOr<std::unique_ptr<Communicator>> ForLaunch(
      const Launch& launch, CommunicatorOptions options);

  // Connects rank `rank` of `size` through `store`. `name` tells groups apart
  // on one store and in messages ("world", "data of stage 1"): a store takes
  // each name once. DeadlineExceeded names the ranks that did not come.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(
      c10::intrusive_ptr<c10d::Store> store, int rank, int size,
      const std::string& name, const CommunicatorOptions& options);

  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const std::string& backend() const { return options_.backend; }
  const std::optional<c10::Device>& device() const { return options_.device; }
  const CommunicatorOptions& options() const { return options_; }
  // Which backends carry the tensors of the host, and of a device.
  const BackendNames& backend_names() const { return names_; }
  // What messages call a rank of this group: its number in the whole job.
  int NameOf(int rank) const;

  // In place: `tensor` becomes the sum over all ranks, the same bits on each;
  // not for bool and complex numbers.
  absl::Status AllReduceSum(at::Tensor tensor,
                            const CollectivePurpose& purpose = nullptr);
  // Starts the same and returns at once. Each rank's tensor is multiplied by
  // `factor` before it is summed (PyTorch's DDP: divide, then sum); only for
  // floating-point tensors if that is not 1. Collectives of a group run in the
  // order in which they were started.
  absl::StatusOr<PendingCollective> StartAllReduceSum(
      at::Tensor tensor, double factor = 1,
      const CollectivePurpose& purpose = nullptr);
  // The same for `root` alone, with the same bits by shm; others' mean nothing.
  absl::StatusOr<PendingCollective> StartReduceSum(
      at::Tensor tensor, int root, double factor = 1,
      const CollectivePurpose& purpose = nullptr);
  // In place: `tensor` becomes that of rank `root`.
  absl::Status Broadcast(at::Tensor tensor, int root,
                         const CollectivePurpose& purpose = nullptr);
  // Every rank's tensor, by rank: new tensors.
  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      const at::Tensor& tensor, const CollectivePurpose& purpose = nullptr);
  // Every rank's string (of any length), by rank.
  absl::StatusOr<std::vector<std::string>> AllGatherString(
      const std::string& mine, const CollectivePurpose& purpose = nullptr);
  absl::Status Barrier(const CollectivePurpose& purpose = nullptr);

  // Start a message (RankMessage) and return at once: the tensor must not be
  // touched before the wait has ended. From any thread, at any time.
  absl::StatusOr<PendingCollective> StartSend(
      const at::Tensor& tensor, int to, int tag,
      const CollectivePurpose& purpose = nullptr);
  absl::StatusOr<PendingCollective> StartReceive(
      at::Tensor tensor, int from, int tag,
      const CollectivePurpose& purpose = nullptr);

  // Messages that may meet their counterparts in any order, whatever the
  // backend: NCCL's ncclGroupStart.
  absl::StatusOr<PendingCollective> StartMessages(
      absl::Span<const RankMessage> messages,
      const CollectivePurpose& purpose = nullptr);

  // Waits until all that was started on streams has ended, and returns the
  // group's error if it has one. At once where the host's backend is alone.
  absl::Status Synchronize();

  // Tells the others that this rank has failed between two collectives, and
  // why, so that what they wait for, or start later, fails at once; the group
  // is of no more use. Not collective. What it has started itself fails with
  // `reason`. Other groups, subgroups included, go on, unless ranks share fate.
  void Abort(const absl::Status& reason);

  // A group of some of these ranks (numbers within this group, this one's
  // included), in that order. Only they call this, alike.
  absl::StatusOr<std::unique_ptr<Communicator>> Subgroup(
      absl::Span<const int> ranks, const std::string& name,
      const SubgroupOptions& options = {});

  // For what else there is; null when size() is 1. Collectives are issued under
  // IssueMutex() (core/backend/host_works.h), and waited for without it.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const {
    return process_group_;
  }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
               std::string name, CommunicatorOptions options,
               std::unique_ptr<CollectiveRunner> runner);

  // For collectives that are functions (core/comm/communicator_tensors.h).
  friend CollectiveRunner* GroupRunner(const Communicator& group);

  c10::intrusive_ptr<c10d::Store> store_;  // keys of this group alone
  int rank_;
  int size_;
  std::string name_;
  CommunicatorOptions options_;
  BackendNames names_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  std::unique_ptr<CollectiveRunner> runner_;  // connected; null if size_ is 1
  std::map<std::string, int> subgroups_;      // how often each was made
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_COMMUNICATOR_H_
