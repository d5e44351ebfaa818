// Shared memory inside each host, Gloo between hosts.

#ifndef TANDEM_CORE_HIERARCHICAL_BACKEND_H_
#define TANDEM_CORE_HIERARCHICAL_BACKEND_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/shm_backend.h"
#include "core/store.h"
#include "core/work_thread.h"

namespace tandem {

// Which ranks are on which host.
struct HostLayout {
  explicit HostLayout(const std::vector<std::string>& host_of_rank);

  int host_count() const { return static_cast<int>(ranks.size()); }
  // In order of their first ranks, which are their leaders.
  std::vector<std::vector<int>> ranks;
  std::vector<int> host;   // of each rank
  std::vector<int> local;  // each rank's place among its host's
};

// All-reduce: the ranks of each host reduce through shared memory, in their
// order; the hosts' leaders reduce the hosts' results over Gloo; each leader
// broadcasts to its host. Broadcast and barrier go the same way. A rank that is
// alone on its host has no part of this inside of it. These run on a
// thread of the backend, in the order of issue. Messages between two ranks of a
// host go through shared memory.
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

  // `names`: what messages call the ranks, unless it is empty.
  static absl::StatusOr<c10::intrusive_ptr<HierarchicalBackend>> Create(
      const StorePtr& store, int rank, const HostLayout& layout,
      std::chrono::milliseconds timeout, const std::vector<int>& names,
      MakeGloo make_gloo);

  HierarchicalBackend(int rank, HostLayout layout,
                      c10::intrusive_ptr<ShmBackend> local, BackendPtr leaders,
                      BackendPtr all);
  // Finishes what was issued.
  ~HierarchicalBackend() override;

  const std::string getBackendName() const override { return "shm+gloo"; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return issued_; }

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options = {}) override;
  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& options = {}) override;
  WorkPtr barrier(const c10d::BarrierOptions& options = {}) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;

  WorkPtr reduce(Tensors& tensors,
                 const c10d::ReduceOptions& options = {}) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options = {}) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options = {}) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options = {}) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options = {}) override;
  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options = {}) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options = {}) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
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
  bool SameHost(int rank) const {
    return layout_.host[rank] == layout_.host[rank_];
  }

  bool AloneOnHost() const {
    return layout_.ranks[layout_.host[rank_]].size() == 1;
  }

  const HostLayout layout_;
  const c10::intrusive_ptr<ShmBackend> local_;
  const BackendPtr leaders_;  // null on ranks that are none
  const BackendPtr all_;
  uint64_t issued_ = 0;
  WorkThread thread_;  // ends first
};

}  // namespace tandem

#endif  // TANDEM_CORE_HIERARCHICAL_BACKEND_H_
