// NCCL, simulated: a c10d backend for simulated devices that behaves as
// ProcessGroupNCCL does on GPUs. What would hang there hangs here, and is told.

#ifndef TANDEM_CORE_SIM_NCCL_BACKEND_H_
#define TANDEM_CORE_SIM_NCCL_BACKEND_H_

#include <c10/core/Device.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "core/sim/nccl/communicator.h"
#include "core/store/store.h"

namespace tandem {
namespace sim {

struct NcclOptions {
  // Makes a backend for CPU tensors of all ranks, who meet on that store: what
  // a communicator moves its bytes with.
  std::function<absl::StatusOr<c10::intrusive_ptr<c10d::Backend>>(
      const StorePtr& store)>
      make_wire;
  // The same on all ranks, another group's nowhere.
  std::string name;
  std::vector<int> rank_names;  // in the job; empty: as they count
  // Where ranks of all groups find each other's notes of whom they wait for.
  StorePtr job;
  // Devices whose communicators are made at once, in this order, as with
  // init_process_group's device_id; those of others are made with the first
  // tensor, and whoever brings it waits for the others. Each rank has as many.
  std::vector<c10::Device> devices;
};

// FailedPrecondition where this process's simulated devices have no streams.
absl::Status CheckStreams();

// For asynchronous simulated devices. One communicator for each device of this
// rank whose tensors come, in the same order on all ranks. What works do:
// communicator.h, work.h. A group between startCoalescing and endCoalescing is
// one work.
class NcclBackend : public c10d::Backend {
 public:
  // Collective, where devices are given. Requires CheckStreams.
  static absl::StatusOr<c10::intrusive_ptr<NcclBackend>> Create(
      const StorePtr& store, int rank, int size, NcclOptions options);

  NcclBackend(StorePtr store, int rank, int size, NcclOptions options);
  ~NcclBackend() override;

  const std::string getBackendName() const override { return "sim_nccl"; }
  bool supportsCoalescing() const override { return true; }

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options = {}) override;
  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& options = {}) override;
  WorkPtr reduce(Tensors& tensors,
                 const c10d::ReduceOptions& options = {}) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options = {}) override;
  WorkPtr all_gather_single(
      at::Tensor& output, at::Tensor& input,
      const c10d::AllgatherOptions& options = {}) override;
  WorkPtr reduce_scatter_single(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options = {}) override;
  // A send and a receive for each other rank in one group, as NCCL's is; what a
  // rank sends and what the other one expects must be as long.
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options = {}) override;
  WorkPtr barrier(const c10d::BarrierOptions& options = {}) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // This rank's alone: others' works go on waiting.
  void Abort(const std::string& reason);
  void abort() override { Abort("by this rank"); }
  // Where works have ended. One that was used and is neither shut down nor
  // aborted warns at its end, as c10d's.
  void shutdown() override { is_shut_down_ = true; }

 private:
  struct Group {
    std::vector<NcclPart> parts;
    Tensors tensors;
  };

  absl::Status Connect(c10::Device device);
  NcclCommunicator& DeviceCommunicator(c10::Device device);
  // At once, or with the rest of a group: then there is no work.
  WorkPtr Launch(c10d::OpType type, std::vector<NcclPart> parts,
                 const Tensors& tensors);
  WorkPtr Message(bool sends, Tensors& tensors, int peer);

  const StorePtr store_;
  const NcclOptions options_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<NcclCommunicator>> communicators_;  // by device
  std::string aborted_;
  std::atomic<bool> was_used_{false};
  std::atomic<bool> is_shut_down_{false};
  std::optional<Group> group_;
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_BACKEND_H_
