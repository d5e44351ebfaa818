// Wire of a simulated NCCL communicator: what its stream's work reaches the
// other ranks with.

#ifndef TANDEM_CORE_SIM_NCCL_WIRE_H_
#define TANDEM_CORE_SIM_NCCL_WIRE_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace tandem {
namespace sim {

// A c10d backend for CPU tensors that nobody else uses, whose waits can be
// left: by Leave(), on this rank alone, as ncclCommAbort is local. Where the
// backend itself fails (a rank is gone) a wait goes on until it is left: a GPU
// that waits for a dead one does so, too.
//
// One thread uses it, but for Leave.
class NcclWire {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  explicit NcclWire(c10::intrusive_ptr<c10d::Backend> backend);
  // What was left is broken off on the other ranks as well: they had their time
  // to leave by themselves.
  ~NcclWire();

  c10d::Backend& backend() const { return *backend_; }

  // Messages of one kind between two ranks come in the order of sending.
  enum class Kind : int { kCollective, kSends, kReceives, kData };
  WorkPtr Send(at::Tensor bytes, int to, Kind kind);
  WorkPtr Receive(at::Tensor bytes, int from, Kind kind);

  // False: it was left.
  bool Await(c10d::Work& work);
  // As long as nobody leaves.
  void AwaitLeaving();

  void Leave() { is_left_ = true; }
  bool is_left() const;

 private:
  const c10::intrusive_ptr<c10d::Backend> backend_;
  std::atomic<bool> is_left_{false};
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_WIRE_H_
