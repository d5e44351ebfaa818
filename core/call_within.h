// A bound for calls that have none.

#ifndef TANDEM_CORE_CALL_WITHIN_H_
#define TANDEM_CORE_CALL_WITHIN_H_

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/torch_status.h"

namespace tandem {

// Calls `fn` on a thread of its own and waits at most `timeout` for its result.
// DeadlineExceeded when it has not come: the thread is then left behind, so
// `fn` must own all that it uses. For what happens a few times in a run, such
// as talking to a store whose server may be frozen.
template <typename T>
absl::StatusOr<T> CallWithin(std::chrono::milliseconds timeout,
                             std::function<absl::StatusOr<T>()> fn) {
  std::promise<absl::StatusOr<T>> promise;
  std::future<absl::StatusOr<T>> result = promise.get_future();
  std::thread([fn = std::move(fn), promise = std::move(promise)]() mutable {
    promise.set_value(CatchTorchOr(fn));
  }).detach();
  if (result.wait_for(timeout) != std::future_status::ready) {
    return absl::DeadlineExceededError("no answer");
  }
  return result.get();
}

}  // namespace tandem

#endif  // TANDEM_CORE_CALL_WITHIN_H_
