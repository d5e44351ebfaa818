#include "core/backend/host_works.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

namespace tandem {

absl::Mutex& IssueMutex() {
  static auto* const mutex = new absl::Mutex;
  return *mutex;
}

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

namespace {

using std::chrono::microseconds;

// Short works are seen at once, long ones cost nothing.
constexpr microseconds kFirstPause(20);
constexpr microseconds kLongestPause(5000);
constexpr microseconds kLookPause(500000);
constexpr std::chrono::seconds kGrace(1);

}  // namespace

PolledWork::PolledWork(c10::intrusive_ptr<c10d::Work> work,
                       std::chrono::milliseconds timeout,
                       std::function<void()> look)
    : work_(std::move(work)), timeout_(timeout), look_(std::move(look)) {}

bool PolledWork::wait(std::chrono::milliseconds timeout) {
  const auto patience = timeout == kNoTimeout ? timeout_ : timeout;
  if (AwaitEnd(Clock::now() + patience, look_)) return true;
  TORCH_CHECK_WITH(DistBackendError, false, "timed out after ",
                   patience.count(), " ms on the stream");
}

bool PolledWork::AwaitEnd(Clock::time_point deadline,
                          const std::function<void()>& look) {
  Clock::time_point next_look = Clock::now() + kLookPause;
  microseconds pause = kFirstPause;
  while (!work_->isCompleted()) {
    if (Clock::now() > deadline) return false;
    if (look && Clock::now() > next_look) {
      Look(look);
      next_look = Clock::now() + kLookPause;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  if (const std::exception_ptr error = work_->exception()) {
    std::rethrow_exception(error);
  }
  return true;
}

void PolledWork::Look(const std::function<void()>& look) {
  try {
    look();
  } catch (...) {
    // What the work says itself tells more; and it may just be ending.
    if (!AwaitEnd(Clock::now() + kGrace, nullptr)) throw;
  }
}

}  // namespace tandem
