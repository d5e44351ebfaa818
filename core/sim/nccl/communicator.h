// NCCL communicator, simulated: one ordered queue of collectives and messages,
// on a stream of a simulated device (ncclComm_t).

#ifndef TANDEM_CORE_SIM_NCCL_COMMUNICATOR_H_
#define TANDEM_CORE_SIM_NCCL_COMMUNICATOR_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "core/shm/completion_notice.h"
#include "core/sim/nccl/deadlock.h"
#include "core/sim/streams/stream_queue.h"

namespace tandem {
namespace sim {

// Wire of a simulated NCCL communicator: what its stream's work reaches the
// other ranks with.

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
  // Waits until somebody leaves.
  void AwaitLeaving();

  void Leave() { is_left_ = true; }
  bool is_left() const;

 private:
  const c10::intrusive_ptr<c10d::Backend> backend_;
  std::atomic<bool> is_left_{false};
};

// NCCL work, simulated: a collective or messages on a communicator's stream, as
// c10d sees them (c10d's WorkNCCL).

// wait() orders streams and never the host: what the calling thread's stream of
// the device is given from then on runs behind the work; it throws nothing and
// knows no timeout. Errors come by polling: isCompleted(), then exception().
//
// Thread-safe.
class NcclWork : public c10d::Work, public NotifiesCompletion {
 public:
  NcclWork(c10d::OpType type, c10::Device device,
           std::vector<at::Tensor> outputs);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void OnCompletion(std::function<void()> callback) override;

  // For the communicator: the mark that what waits for the work waits for, and
  // its end, with an error or without one. Streams go on in either case.
  Event& end() { return end_; }
  void End(std::exception_ptr error);

 private:
  const c10::Device device_;
  const std::vector<at::Tensor> outputs_;
  Event end_;
  mutable std::mutex state_mutex_;
  bool has_ended_ = false;
  std::exception_ptr error_;
  std::function<void()> callback_;
};

// A part of what a communicator is given at once: a collective, or a message.
struct NcclPart {
  // What the other ranks must do as well: "all-reduce of 5 Float, sum".
  std::string collective;  // empty: a message
  // Starts it on the wire's backend, on CPU tensors.
  std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)> start;

  bool sends = false;
  int peer = 0;
  at::Tensor bytes;  // a CPU tensor over the device's memory
};

// What NCCL does that other backends forgive:
//   - the host returns at once; the work runs on the communicator's stream,
//     behind what the calling thread's stream of the device was given before;
//   - works of one communicator run one after the other, messages of both
//     directions and collectives alike;
//   - messages have no tags: they match by order alone. A send waits for its
//     receive;
//   - a work in which others do not join, or do something else, holds up the
//     stream, and whoever waits for it, until Abort();
//   - Abort() is local: others go on waiting.
// Parts that are launched together (ncclGroupStart) may meet their counterparts
// in any order.
//
// Any thread may launch, one at a time.
class NcclCommunicator {
 public:
  struct Options {
    std::string name;  // the same on all ranks, another one's nowhere
    int rank = 0;
    std::vector<int> rank_names;  // in the job
    c10::Device device;
  };

  // `backend`: CPU tensors, of this communicator alone.
  NcclCommunicator(Options options, c10::intrusive_ptr<c10d::Backend> backend);
  // Runs what was launched, unless it was aborted.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const Options& options() const { return options_; }
  int NameOf(int rank) const;

  // `tensors`: those of the device that it works on, which live until it has
  // run. c10d::DistBackendError after Abort.
  c10::intrusive_ptr<NcclWork> Launch(c10d::OpType type,
                                      std::vector<NcclPart> parts,
                                      std::vector<at::Tensor> tensors);

  // What was launched ends with an error that says `reason`.
  void Abort(const std::string& reason);

  CommunicatorWait Wait() const;

 private:
  struct Unit;
  using State = CommunicatorWait::State;

  // On the stream.
  void Run(const std::shared_ptr<Unit>& unit);
  void Enter(State state, const std::string& operation);
  // Whether all have come, and what moves has moved; false: the wire was left.
  bool Meet(Unit* unit);
  bool Move(Unit* unit);
  void CheckAnnouncement(const NcclPart& part, int peer,
                         const std::string& theirs);
  std::string PartText(const NcclPart& part) const;
  std::string PartText(const std::vector<NcclPart>& parts) const;
  std::vector<int> PartPeers(const NcclPart& part) const;
  std::exception_ptr error() const;

  const Options options_;
  std::vector<std::shared_ptr<Unit>> left_;  // outlives the wire
  NcclWire wire_;
  const c10::Stream stream_;
  mutable std::mutex mutex_;
  CommunicatorWait wait_;
  std::chrono::steady_clock::time_point since_;
  std::string aborted_;  // why; empty: it was not
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_COMMUNICATOR_H_
