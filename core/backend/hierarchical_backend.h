// Shared memory inside each host, Gloo between hosts.

#ifndef TANDEM_CORE_BACKEND_HIERARCHICAL_BACKEND_H_
#define TANDEM_CORE_BACKEND_HIERARCHICAL_BACKEND_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/backend/host_works.h"
#include "core/shm/backend.h"
#include "core/store/store.h"

namespace tandem {

// Host layout: which ranks are on which host.

struct HostLayout {
  explicit HostLayout(const std::vector<std::string>& host_of_rank);

  int host_count() const { return static_cast<int>(ranks.size()); }
  // In order of their first ranks, which are their leaders.
  std::vector<std::vector<int>> ranks;
  std::vector<int> host;   // of each rank
  std::vector<int> local;  // each rank's place among its host's
};

// Chunked collective: three phases over a tensor in chunks, whose phases
// overlap.

// What is done with a chunk: each starts an operation on it. An empty function:
// this rank has no part in that phase.
struct ThreePhases {
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(
      std::vector<at::Tensor>& chunk)>;
  Start up;      // inside of hosts
  Start across;  // between hosts
  Start down;    // inside of hosts
};

// Cuts the tensor into chunks of about `chunk_bytes` (at least 64), in the same
// way on all ranks that give the same. While one chunk is between hosts, the
// next one goes up and the one before comes down:
//
//   inside    up 0  up 1  up 2     down 0  up 3     down 1 ...
//   between         across 0  across 1         across 2 ...
//
// Operations inside of hosts are started in this order on every rank, and those
// between hosts in theirs, whatever takes how long; at most two are between
// hosts at a time. Returns when all have ended; throws what one throws first,
// while others may still be on their way. Several tensors, or one that is not
// contiguous, are one chunk.
void RunInChunks(const std::vector<at::Tensor>& tensors, int64_t chunk_bytes,
                 const ThreePhases& phases);

// All-reduce: the ranks of each host reduce to its leader through shared
// memory, in their order; the hosts' leaders reduce the hosts' results over
// Gloo; each leader broadcasts to its host. Broadcast and barrier go the same
// way. A rank that is alone on its host has no part of this inside of it. These
// run on a thread of the backend, in the order of issue. Messages between two
// ranks of a host go through shared memory.
//
// Where any host has several ranks, a large tensor goes in chunks, so that what
// is done inside hosts and between them overlaps (RunInChunks). Which bits an
// all-reduce gives depends on the hosts and the tensor's size alone: for three
// hosts or more, the order in which an element's terms are added depends on its
// place in its chunk.
//
// An all-gather into one tensor: each host gathers its ranks' parts through
// shared memory, and then each leader sends its host's to the others, in such
// chunks.
//
// All else, and messages between hosts, goes over Gloo among all ranks.
//
// An AVG is the sum divided by the number of ranks. When one of the ways fails,
// the ranks of the host are told at once; other hosts notice by their
// connections or by timeout.
class HierarchicalBackend : public c10d::Backend {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  // Makes a Gloo group of `size` ranks that meet on `store`.
  using MakeGloo = absl::FunctionRef<absl::StatusOr<BackendPtr>(
      const StorePtr& store, int rank, int size)>;

  // A chunk is long enough that Gloo's messages and wake-ups cost little of its
  // time, and a gradient bucket is several.
  static constexpr int64_t kChunkBytes = 4 << 20;

  // `names`: what messages call the ranks, unless it is empty. `chunk_bytes`
  // must be the same on all ranks.
  static absl::StatusOr<c10::intrusive_ptr<HierarchicalBackend>> Create(
      const StorePtr& store, int rank, const HostLayout& layout,
      std::chrono::milliseconds timeout, const std::vector<int>& names,
      MakeGloo make_gloo, int64_t chunk_bytes = kChunkBytes);

  HierarchicalBackend(int rank, HostLayout layout,
                      c10::intrusive_ptr<ShmBackend> local, BackendPtr leaders,
                      BackendPtr all, int64_t chunk_bytes = kChunkBytes);
  // Finishes what was issued.
  ~HierarchicalBackend() override;

  const std::string getBackendName() const override { return "shm+gloo"; }
  uint64_t getSequenceNumberForGroup() override { return issued_; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options = {}) override;
  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& options = {}) override;
  WorkPtr barrier(const c10d::BarrierOptions& options = {}) override;
  void monitoredBarrier(const c10d::BarrierOptions& options,
                        bool wait_all_ranks = false) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;

  WorkPtr reduce(Tensors& tensors,
                 const c10d::ReduceOptions& options = {}) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options = {}) override;
  WorkPtr all_gather_single(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& options = {}) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options = {}) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options = {}) override;
  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr reduce_scatter_single(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options = {}) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options = {}) override;

  at::Tensor allocateTensor(long size,
                            at::TensorOptions options = {}) override {
    return local_->allocateTensor(size, options);
  }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  // ShmBackend's, for the ranks of this host; the others' connections break.
  void Abort(const std::string& reason);
  void abort() override { Abort("aborted"); }

 private:
  // Runs `steps` on the thread; its failure is told on this host.
  WorkPtr Run(c10d::OpType type, Tensors outputs, std::function<void()> steps);
  ThreePhases AllReducePhases(const c10d::AllreduceOptions& options);
  ThreePhases BroadcastPhases(const c10d::BroadcastOptions& options);
  // A chunk goes from the leader of `host`, whose ranks have it, to all others.
  ThreePhases FromHost(int host, std::chrono::milliseconds timeout);
  // `parts`: by rank, those of this host are gathered.
  void GatherInside(const at::Tensor& parts, const at::Tensor& input,
                    const c10d::AllgatherOptions& options);
  // From the host's rank `root`.
  ThreePhases::Start BroadcastInside(int root,
                                     std::chrono::milliseconds timeout);
  bool SameHost(int rank) const {
    return layout_.host[rank] == layout_.host[rank_];
  }

  bool AloneOnHost() const {
    return layout_.ranks[layout_.host[rank_]].size() == 1;
  }

  const HostLayout layout_;
  const int64_t chunk_bytes_;
  const c10::intrusive_ptr<ShmBackend> local_;
  const BackendPtr leaders_;  // null on ranks that are none
  const BackendPtr all_;
  uint64_t issued_ = 0;
  WorkThread thread_;  // ends first
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_HIERARCHICAL_BACKEND_H_
