#include "core/base/call_within.h"

#include <glog/logging.h>
#include <stdlib.h>

#include <atomic>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/end_process.h"

namespace tandem {
namespace {

constexpr absl::Duration kFarewell = absl::Milliseconds(100);

// Threads that were left behind and have not ended.
std::atomic<int> left_behind{0};

// Called at the end of the process, before the destructors of what was made
// before it was registered.
void EndWithoutDestructors(int exit_code, void* /*unused*/) {
  if (left_behind > 0) EndProcess(exit_code);
}

void CountLeftBehind() {
  ++left_behind;
  // When the first is left behind, so that as much as possible was made before.
  static const int registered = on_exit(&EndWithoutDestructors, nullptr);
  LOG_IF(ERROR, registered != 0) << "cannot register what ends the process";
}

}  // namespace

struct CallThread::State {
  absl::Mutex mutex;
  std::deque<std::function<void()>> calls ABSL_GUARDED_BY(mutex);
  bool runs ABSL_GUARDED_BY(mutex) = false;  // a call
  bool stops ABSL_GUARDED_BY(mutex) = false;
  bool is_left_behind ABSL_GUARDED_BY(mutex) = false;
};

CallThread::CallThread() : state_(std::make_shared<State>()) {}

CallThread::~CallThread() {
  if (!thread_.joinable()) return;
  State& state = *state_;
  {
    absl::MutexLock lock(&state.mutex);
    state.stops = true;
    const auto is_idle = [&state] {
      state.mutex.AssertHeld();
      return !state.runs;
    };
    if (!state.mutex.AwaitWithTimeout(absl::Condition(&is_idle), kFarewell)) {
      state.is_left_behind = true;
      CountLeftBehind();
      thread_.detach();
    }
  }
  if (thread_.joinable()) thread_.join();
}

void CallThread::Add(std::function<void()> call) {
  absl::MutexLock lock(&state_->mutex);
  state_->calls.push_back(std::move(call));
  if (thread_.joinable()) return;
  thread_ = std::thread([state = state_] { Run(state); });
}

void CallThread::Run(const std::shared_ptr<State>& state) {
  const auto is_wanted = [&state] {
    state->mutex.AssertHeld();
    return state->stops || !state->calls.empty();
  };
  for (;;) {
    std::function<void()> call;
    {
      absl::MutexLock lock(&state->mutex);
      state->mutex.Await(absl::Condition(&is_wanted));
      if (state->stops) return;
      call = std::move(state->calls.front());
      state->calls.pop_front();
      state->runs = true;
    }
    call();
    call = nullptr;  // what it owns goes before its end is known
    absl::MutexLock lock(&state->mutex);
    state->runs = false;
    if (!state->is_left_behind) continue;
    --left_behind;
    return;
  }
}

}  // namespace tandem
