// Collectives that streams of a device run: who looks after them.

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "core/backend/polled_work.h"
#include "core/backend/work_thread.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/collective_runner.h"
#include "core/health/roll_call.h"
#include "core/shm/completion_notice.h"

namespace tandem {

void CollectiveRunner::LookAfter(Call call, const WorkPtr& work,
                                 std::function<void()> end) {
  if (auto* const notifier = dynamic_cast<NotifiesCompletion*>(work.get())) {
    notifier->OnCompletion(end);
  }
  // The job's watch does it for all groups, where there is one.
  std::function<void()> at_others;
  if (job_watch_ == nullptr) {
    at_others = [store = member_.store] {
      TORCH_CHECK_WITH(DistNetworkError, !SomebodyFailed(*store),
                       "another rank failed");
    };
  }
  const auto polled = c10::make_intrusive<PolledWork>(work, options_.timeout,
                                                      std::move(at_others));
  const auto look = [this, polled, call = std::move(call),
                     end = std::move(end)] {
    // Who waits next is told.
    WaitFor(call, *polled, stream_watch_.get()).IgnoreError();
    end();
  };
  absl::MutexLock lock(&mutex_);
  if (stream_works_ == nullptr) stream_works_ = std::make_unique<WorkThread>();
  stream_works_->Add(c10::make_intrusive<FunctionWork>(
      c10d::OpType::UNKNOWN, std::vector<at::Tensor>(), look));
}

absl::Status CollectiveRunner::Synchronize() {
  const auto last = c10::make_intrusive<FunctionWork>(
      c10d::OpType::UNKNOWN, std::vector<at::Tensor>(), [] {});
  {
    absl::MutexLock lock(&mutex_);
    if (stream_works_ == nullptr) return broken_;
    stream_works_->Add(last);
  }
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { last->wait(); }));
  return broken();
}

}  // namespace tandem
