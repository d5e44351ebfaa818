// Imagined links: a c10d backend for imagined devices (core/sim/imagined),
// whose tensors are shapes. It moves nothing, waits for nobody, and counts.

#ifndef TANDEM_CORE_SIM_LINKS_BACKEND_H_
#define TANDEM_CORE_SIM_LINKS_BACKEND_H_

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/status.h"

namespace tandem {
namespace sim {

// FailedPrecondition where this process's simulated devices are not imagined.
absl::Status CheckImagined();

// Works have ended when they have been started. A collective's bytes are those
// that cross a device's link in a ring, as nccl-tests count them: of an
// all-reduce 2 (n - 1) / n of its tensor's, of an all-gather or reduce-scatter
// (n - 1) / n of the larger one's, of a reduce or broadcast all, and of an
// all-to-all what goes to the other ranks. Waiting for a
// collective's work has the device's clock wait (meters.h). Tags and orders
// mean nothing. Requires CheckImagined; thread-safe.
class LinksBackend : public c10d::Backend {
 public:
  LinksBackend(int rank, int size) : Backend(rank, size) {}

  const std::string getBackendName() const override { return "sim_links"; }
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
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options = {}) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;

  // A group's messages have been counted one by one.
  void startCoalescing() override {}
  WorkPtr endCoalescing() override;

  void abort() override {}
  void shutdown() override {}

 private:
  // `share`: of the tensors' bytes, what crosses the link.
  WorkPtr Collective(c10d::OpType type, const Tensors& tensors, double share);
  double OthersShare() const;  // (n - 1) / n
  // What others get of a tensor that is split so; empty: in equal parts.
  double OthersShare(const std::vector<int64_t>& splits) const;
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_LINKS_BACKEND_H_
