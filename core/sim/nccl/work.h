// NCCL work, simulated: a collective or messages on a communicator's stream, as
// c10d sees them (c10d's WorkNCCL).

#ifndef TANDEM_CORE_SIM_NCCL_WORK_H_
#define TANDEM_CORE_SIM_NCCL_WORK_H_

#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "core/shm/completion_notice.h"
#include "core/sim/streams/stream_queue.h"

namespace tandem {
namespace sim {

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

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_NCCL_WORK_H_
