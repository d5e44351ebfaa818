#include "core/sim/links/backend.h"

#include <cstdint>
#include <functional>
#include <numeric>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "core/shm/completion_notice.h"
#include "core/sim/imagined/imagined_memory.h"
#include "core/sim/imagined/meters.h"

namespace tandem {
namespace sim {
namespace {

using c10d::OpType;

double TotalBytes(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const at::Tensor& each : tensors) {
    bytes += static_cast<double>(each.nbytes());
  }
  return bytes;
}

// One that has ended. It holds no tensor: who looks after works in the
// background would keep its memory for a moment that differs from run to run.
class LinksWork : public c10d::Work, public NotifiesCompletion {
 public:
  LinksWork(OpType type, std::function<void()> wait)
      : Work(/*rank=*/-1, type), wait_(std::move(wait)) {}

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    synchronize();
    return true;
  }
  void synchronize() override {
    if (wait_) wait_();
  }
  void OnCompletion(std::function<void()> callback) override { callback(); }

 private:
  const std::function<void()> wait_;  // null: nothing waits for it
};

LinksBackend::WorkPtr MessageWork(OpType type) {
  return c10::make_intrusive<LinksWork>(type, nullptr);
}

}  // namespace

absl::Status CheckImagined() {
  if (MemoryIsImagined()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the backend sim_links moves nothing: it is for simulated devices that "
      "are imagined (SimOptions::imagined; train chooses it by itself with "
      "--fake_weights), and those of this process are not");
}

double LinksBackend::OthersShare() const {
  return static_cast<double>(getSize() - 1) / getSize();
}

double LinksBackend::OthersShare(const std::vector<int64_t>& splits) const {
  if (splits.empty()) return OthersShare();
  const auto all = static_cast<double>(
      std::accumulate(splits.begin(), splits.end(), int64_t{0}));
  const auto own = static_cast<double>(splits.at(getRank()));
  return all == 0 ? 0 : (all - own) / all;
}

LinksBackend::WorkPtr LinksBackend::Collective(OpType type,
                                               const Tensors& tensors,
                                               double share) {
  const int device = tensors.at(0).device().index();
  const double end = StartCollective(device, share * TotalBytes(tensors));
  return c10::make_intrusive<LinksWork>(
      type, [device, end] { AwaitCollective(device, end); });
}

LinksBackend::WorkPtr LinksBackend::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& /*options*/) {
  return Collective(OpType::ALLREDUCE, tensors, 2 * OthersShare());
}

LinksBackend::WorkPtr LinksBackend::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& /*options*/) {
  return Collective(OpType::BROADCAST, tensors, 1);
}

LinksBackend::WorkPtr LinksBackend::reduce(
    Tensors& tensors, const c10d::ReduceOptions& /*options*/) {
  return Collective(OpType::REDUCE, tensors, 1);
}

LinksBackend::WorkPtr LinksBackend::allgather(
    std::vector<Tensors>& outputs, Tensors& /*inputs*/,
    const c10d::AllgatherOptions& /*options*/) {
  return Collective(OpType::ALLGATHER, outputs.at(0), OthersShare());
}

LinksBackend::WorkPtr LinksBackend::all_gather_single(
    at::Tensor& output, at::Tensor& /*input*/,
    const c10d::AllgatherOptions& /*options*/) {
  return Collective(OpType::_ALLGATHER_BASE, {output}, OthersShare());
}

LinksBackend::WorkPtr LinksBackend::reduce_scatter_single(
    at::Tensor& /*output*/, at::Tensor& input,
    const c10d::ReduceScatterOptions& /*options*/) {
  return Collective(OpType::_REDUCE_SCATTER_BASE, {input}, OthersShare());
}

LinksBackend::WorkPtr LinksBackend::all_to_all_single(
    at::Tensor& /*output*/, at::Tensor& input,
    std::vector<int64_t>& /*output_splits*/, std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& /*options*/) {
  return Collective(OpType::ALLTOALL_BASE, {input}, OthersShare(input_splits));
}

LinksBackend::WorkPtr LinksBackend::send(Tensors& /*tensors*/, int /*to*/,
                                         int /*tag*/) {
  return MessageWork(OpType::SEND);
}

// The side that receives counts a message.
LinksBackend::WorkPtr LinksBackend::recv(Tensors& tensors, int /*from*/,
                                         int /*tag*/) {
  CountMessage(tensors.at(0).device().index(), TotalBytes(tensors));
  return MessageWork(OpType::RECV);
}

LinksBackend::WorkPtr LinksBackend::endCoalescing() {
  return MessageWork(OpType::COALESCED);
}

}  // namespace sim
}  // namespace tandem
