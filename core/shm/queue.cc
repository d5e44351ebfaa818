#include "core/shm/queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tandem {

using std::chrono::steady_clock;

ShmQueue::ShmQueue(ShmSegment* segment, int rank,
                   const ShmConnections* connections)
    : segment_(segment), rank_(rank), rounds_(segment, rank, connections) {
  thread_ = std::thread([this] { Run(); });
}

ShmQueue::~ShmQueue() { Close(); }

void ShmQueue::Close() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(stop_, true)) return;
  }
  WakeWorker();
  thread_.join();
  absl::MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = absl::UnavailableError("this rank left");
}

void ShmQueue::WakeWorker() { segment_->page(rank_).wake_signal.Add(1); }

std::shared_ptr<ShmTask> ShmQueue::Issue(ShmCollectivePtr collective,
                                         std::shared_ptr<void> keep,
                                         std::chrono::milliseconds timeout) {
  auto task = std::make_shared<ShmTask>();
  task->collective_ = std::move(collective);
  task->keep_ = std::move(keep);
  task->timeout_ = timeout;
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) {
    Complete(*task, failure_);
    return task;
  }
  if (tasks_.empty() && task->collective_->begins_cheaply()) {
    task->collective_->Begin(rounds_);
    task->begun_ = true;
  }
  tasks_.push_back(task);
  // A thread that waits for this rank and has asked its worker before does not
  // ask again.
  const bool asked = !task->begun_ && segment_->shared().impatient.load() != 0;
  if (task->collective_->is_long() || asked) WakeWorker();
  return task;
}

absl::Status ShmQueue::Wait(ShmTask& task, std::chrono::milliseconds timeout) {
  if (task.told_.load(std::memory_order_acquire)) return task.status();
  const ShmDeadline patience =
      timeout.count() > 0 ? steady_clock::now() + timeout : ShmDeadline::max();
  absl::MutexLock lock(&mutex_);
  while (!Over(task)) {
    if (!CanRun() || task.done()) {
      WaitForChange(patience);
    } else {
      RunFront(/*in_background=*/false, patience);
    }
    if (!Over(task) && steady_clock::now() >= patience) {
      WakeWorker();
      return absl::DeadlineExceededError(
          absl::StrCat("timed out after ", timeout.count(), " ms"));
    }
  }
  return task.status();
}

void ShmQueue::WaitForChange(ShmDeadline patience) {
  if (patience == ShmDeadline::max()) {
    changed_.Wait(&mutex_);
  } else {
    changed_.WaitWithTimeout(&mutex_,
                             absl::FromChrono(patience - steady_clock::now()));
  }
}

void ShmQueue::OnDone(ShmTask& task, std::function<void()> callback) {
  {
    absl::MutexLock lock(&mutex_);
    if (!task.done()) {
      task.on_done_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void ShmQueue::GiveUp(const std::string& reason) {
  segment_->SetState(rank_, ShmRankState::kGaveUp, reason);
  absl::MutexLock lock(&mutex_);
  // The thread that runs a collective notices by itself.
  if (!running_) {
    Fail(absl::UnavailableError("this rank gave up: " + reason));
  }
}

void ShmQueue::Run() {
  SharedSignal& wake_signal = segment_->page(rank_).wake_signal;
  for (;;) {
    const uint32_t seen = wake_signal.value();
    {
      absl::MutexLock lock(&mutex_);
      while (!tasks_.empty()) {
        if (!CanRun()) {
          changed_.Wait(&mutex_);
        } else {
          RunFront(/*in_background=*/true, ShmDeadline::max());
        }
      }
      if (stop_) return;
    }
    wake_signal.Sleep(seen, std::chrono::hours(1));
  }
}

void ShmQueue::RunFront(bool in_background, ShmDeadline patience) {
  const std::shared_ptr<ShmTask> task = tasks_.front();
  running_ = true;
  mutex_.Unlock();
  rounds_.set_in_background(in_background);
  const std::optional<absl::Status> status = Execute(*task, patience);
  mutex_.Lock();
  running_ = false;
  if (status.has_value() && status->ok()) {
    tasks_.pop_front();
    Complete(*task, *status);
  } else if (status.has_value()) {
    Fail(*status);
  }
  changed_.SignalAll();
}

std::optional<absl::Status> ShmQueue::Execute(ShmTask& task,
                                              ShmDeadline patience) {
  if (!task.deadline_.has_value()) {
    task.deadline_ = steady_clock::now() + task.timeout_;
  }
  if (!std::exchange(task.begun_, true)) task.collective_->Begin(rounds_);
  if (patience < *task.deadline_) {
    absl::Status all_came = rounds_.Await(patience);
    if (absl::IsDeadlineExceeded(all_came)) return std::nullopt;
    if (!all_came.ok()) return all_came;
  }
  return task.collective_->Finish(rounds_, *task.deadline_);
}

// Callbacks are called without the mutex: they may issue the next one.
void ShmQueue::Complete(ShmTask& task, const absl::Status& status) {
  task.status_ = status;
  if (status.ok()) {
    task.keep_.reset();
  } else {
    kept_.push_back(std::move(task.keep_));
  }
  task.collective_.reset();
  task.done_.store(true, std::memory_order_release);
  if (!task.on_done_.empty()) {
    task.teller_ = std::this_thread::get_id();
    mutex_.Unlock();
    for (const std::function<void()>& callback : task.on_done_) callback();
    mutex_.Lock();
    task.on_done_.clear();
  }
  task.told_.store(true, std::memory_order_release);
}

bool ShmQueue::Over(const ShmTask& task) {
  // A callback may wait for what it is told of.
  return task.told_.load() ||
         (task.done() && task.teller_ == std::this_thread::get_id());
}

void ShmQueue::Fail(const absl::Status& status) {
  if (failure_.ok()) {
    failure_ = status;
    segment_->SetState(rank_, ShmRankState::kGaveUp, status.message());
  }
  while (!tasks_.empty()) {
    const std::shared_ptr<ShmTask> task = std::move(tasks_.front());
    tasks_.pop_front();
    Complete(*task, failure_);
  }
  changed_.SignalAll();
}

}  // namespace tandem
