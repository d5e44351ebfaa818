// Work thread: functions run one after the other on a thread of its own, each
// as a c10d Work.

#ifndef TANDEM_CORE_BACKEND_WORK_THREAD_H_
#define TANDEM_CORE_BACKEND_WORK_THREAD_H_

#include <deque>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace tandem {

// A function's work: done when it has returned or thrown.
class FunctionWork : public c10d::Work {
 public:
  FunctionWork(c10d::OpType type, std::vector<at::Tensor> outputs,
               std::function<void()> function);

  void Run();
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

 private:
  const std::vector<at::Tensor> outputs_;
  std::function<void()> function_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Thread-safe.
class WorkThread {
 public:
  WorkThread();
  // Runs what it was given first.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  void Add(c10::intrusive_ptr<FunctionWork> work);

 private:
  void Run();

  absl::Mutex mutex_;
  std::deque<c10::intrusive_ptr<FunctionWork>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_WORK_THREAD_H_
