// Deadline for calls that have none.

#ifndef TANDEM_CORE_BASE_CALL_WITHIN_H_
#define TANDEM_CORE_BASE_CALL_WITHIN_H_

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/torch_status.h"

namespace tandem {

// A thread for calls that may never return, such as those of a store whose
// server may be frozen, one after the other. It starts with the first call.
//
// When this is destroyed while a call has not returned, the thread is left
// behind: a call must own all that it uses. While such threads live, the end of
// the process (exit, or a return from main) runs no destructors of static
// objects, which they may still use.
//
// Thread-safe.
class CallThread {
 public:
  CallThread();
  // Waits a tenth of a second for a call that runs; those behind it never run.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  // Has `fn` called; the result comes when that has returned, or thrown.
  template <typename T>
  std::future<absl::StatusOr<T>> Start(std::function<absl::StatusOr<T>()> fn) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
    std::future<absl::StatusOr<T>> result = promise->get_future();
    Add([fn = std::move(fn), promise = std::move(promise)] {
      promise->set_value(CatchTorchOr(fn));
    });
    return result;
  }

  // Calls `fn` and waits at most `timeout` for its result. DeadlineExceeded
  // when it has not come.
  template <typename T>
  absl::StatusOr<T> Within(std::chrono::milliseconds timeout,
                           std::function<absl::StatusOr<T>()> fn) {
    std::future<absl::StatusOr<T>> result = Start<T>(std::move(fn));
    if (result.wait_for(timeout) != std::future_status::ready) {
      return absl::DeadlineExceededError("no answer");
    }
    return result.get();
  }

 private:
  struct State;  // the thread's, too

  static void Run(const std::shared_ptr<State>& state);
  void Add(std::function<void()> call);

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

// CallThread::Within on a thread of its own: for what happens a few times in a
// run.
template <typename T>
absl::StatusOr<T> CallWithin(std::chrono::milliseconds timeout,
                             std::function<absl::StatusOr<T>()> fn) {
  return CallThread().Within<T>(timeout, std::move(fn));
}

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_CALL_WITHIN_H_
