#include "core/sim/nccl/work.h"

#include <utility>

#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {

NcclWork::NcclWork(c10d::OpType type, c10::Device device,
                   std::vector<at::Tensor> outputs)
    : Work(/*rank=*/-1, type), device_(device), outputs_(std::move(outputs)) {}

bool NcclWork::isCompleted() {
  std::lock_guard<std::mutex> lock(state_mutex_);
  return has_ended_;
}

bool NcclWork::isSuccess() const {
  std::lock_guard<std::mutex> lock(state_mutex_);
  return has_ended_ && error_ == nullptr;
}

std::exception_ptr NcclWork::exception() const {
  std::lock_guard<std::mutex> lock(state_mutex_);
  return error_;
}

bool NcclWork::wait(std::chrono::milliseconds /*timeout*/) {
  synchronize();
  return true;
}

void NcclWork::synchronize() {
  HoldStream(end_, CurrentStream(device_.index()));
}

void NcclWork::OnCompletion(std::function<void()> callback) {
  {
    std::lock_guard<std::mutex> lock(state_mutex_);
    if (!has_ended_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

void NcclWork::End(std::exception_ptr error) {
  std::function<void()> callback;
  {
    std::lock_guard<std::mutex> lock(state_mutex_);
    has_ended_ = true;
    error_ = std::move(error);
    callback = std::exchange(callback_, nullptr);
  }
  if (callback) callback();
}

}  // namespace sim
}  // namespace tandem
