// Collectives that streams of a device run: who looks after them.

#include <c10/util/Exception.h>

#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/host_works.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/collective_runner.h"
#include "core/device/device.h"
#include "core/health/group_failures.h"
#include "core/shm/completion_notice.h"

namespace tandem {
namespace {

c10::intrusive_ptr<FunctionWork> NewWork(std::function<void()> function) {
  return c10::make_intrusive<FunctionWork>(
      c10d::OpType::UNKNOWN, std::vector<at::Tensor>(), std::move(function));
}

}  // namespace

void CollectiveRunner::Monitor(Call call, const WorkPtr& work,
                               std::function<void()> end) {
  // Whoever started it goes on before it has ended: to the next step, or to the
  // end of what the purpose is about.
  if (call.purpose) {
    call.purpose = [text = call.purpose()] { return text; };
  }
  if (auto* const notifier = dynamic_cast<NotifiesCompletion*>(work.get())) {
    notifier->OnCompletion(end);
  }
  // A stream does not know that a rank has gone, which the host's backend may;
  // of failures elsewhere in the job its watch knows, where there is one.
  const auto at_others = [group = process_group_, store = member_.store,
                          has_watch = job_watch_ != nullptr] {
    const absl::Status peers = CheckPeers(*group);
    TORCH_CHECK_WITH(DistNetworkError, peers.ok(),
                     std::string(peers.message()));
    TORCH_CHECK_WITH(DistNetworkError, has_watch || !HasFailedRank(*store),
                     "another rank failed");
  };
  const auto polled =
      c10::make_intrusive<PolledWork>(work, options_.timeout, at_others);
  auto look = [this, polled, call, end = std::move(end)] {
    // The next wait is told of an error.
    WaitFor(call, *polled, stream_watch_.get()).IgnoreError();
    end();
    absl::MutexLock lock(&mutex_);
    on_streams_.pop_front();
  };
  absl::MutexLock lock(&mutex_);
  on_streams_.push_back({std::move(call), work});
  if (stream_works_ == nullptr) {
    stream_works_ = std::make_unique<WorkThread>();
    // Or it would make a context on GPU 0, by asking for events.
    stream_works_->Add(
        NewWork([device = *options_.device] { SetCurrentDevice(device); }));
  }
  stream_works_->Add(NewWork(std::move(look)));
}

// Messages are not timed: c10d keeps what is sent only until a stream has
// waited for it. A collective's tensors come out again, and the work has them.
std::optional<DeviceMoment> CollectiveRunner::EndOf(const Call& call,
                                                    c10d::Work& work,
                                                    c10::Device device) {
  const bool tells_itself = dynamic_cast<NotifiesCompletion*>(&work) != nullptr;
  if (tells_itself || call.sequence == 0) return std::nullopt;
  return timer_.EndOf(work, device);
}

CollectiveRunner::Call CollectiveRunner::FirstNotDone(const Call& call) {
  absl::MutexLock lock(&mutex_);
  for (const StreamCall& each : on_streams_) {
    // What failed is completed, too, and maybe before what came after it.
    if (!each.work->isCompleted() || each.work->exception() != nullptr) {
      return each.call;
    }
  }
  return call;
}

absl::Status CollectiveRunner::Synchronize() {
  const auto last = NewWork([] {});
  {
    absl::MutexLock lock(&mutex_);
    if (stream_works_ == nullptr) return broken_;
    stream_works_->Add(last);
  }
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { last->wait(); }));
  return broken();
}

}  // namespace tandem
