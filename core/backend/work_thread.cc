#include "core/backend/work_thread.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <exception>
#include <utility>

namespace tandem {

FunctionWork::FunctionWork(c10d::OpType type, std::vector<at::Tensor> outputs,
                           std::function<void()> function)
    : c10d::Work(-1, type),
      outputs_(std::move(outputs)),
      function_(std::move(function)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()))) {}

void FunctionWork::Run() {
  std::exception_ptr failure;
  try {
    function_();
  } catch (...) {
    failure = std::current_exception();
  }
  function_ = nullptr;
  if (failure == nullptr) {
    future_->markCompleted(c10::IValue(outputs_));
  } else {
    future_->setError(failure);
  }
  finish(failure);
}

WorkThread::WorkThread() : thread_([this] { Run(); }) {}

WorkThread::~WorkThread() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void WorkThread::Add(c10::intrusive_ptr<FunctionWork> work) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(work));
}

void WorkThread::Run() {
  for (;;) {
    c10::intrusive_ptr<FunctionWork> next;
    {
      absl::MutexLock lock(&mutex_);
      const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || !waiting_.empty();
      };
      mutex_.Await(absl::Condition(&wanted));
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next->Run();
  }
}

}  // namespace tandem
