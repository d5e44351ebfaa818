#include "core/comm/collective_runner.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/backend/backend.h"
#include "core/backend/issue_mutex.h"
#include "core/backend/work_thread.h"
#include "core/base/describe_tensor.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_connection.h"
#include "core/health/collective_check.h"
#include "core/health/job_watch.h"
#include "core/health/roll_call.h"
#include "core/health/straggler_watch.h"
#include "core/shm/completion_notice.h"

namespace tandem {
namespace {

using Clock = PendingCollective::Clock;
using EndTime = std::shared_ptr<std::atomic<Clock::rep>>;

// The first to tell is right: the others come later.
void NoteEnd(const EndTime& end) {
  Clock::rep unknown = 0;
  end->compare_exchange_strong(unknown,
                               Clock::now().time_since_epoch().count());
}

// Has `end` set by the thread that completes the work. Unimplemented where the
// backend has no futures.
absl::Status NoteEndOnCompletion(c10d::Work& work, const EndTime& end) {
  if (auto* const notifier = dynamic_cast<NotifiesCompletion*>(&work)) {
    notifier->OnCompletion([end] { NoteEnd(end); });
    return absl::OkStatus();
  }
  return CatchTorch([&] {
    work.getFuture()->addCallback([end](c10::ivalue::Future&) { NoteEnd(end); },
                                  /*uses_future=*/false);
  });
}

}  // namespace

CollectiveRunner::CollectiveRunner(GroupMember member,
                                   const CommunicatorOptions& options)
    : member_(std::move(member)), options_(options) {
  if (options_.check_collectives) {
    check_ = std::make_unique<CollectiveCheck>(member_, options_.timeout);
  }
  if (options_.straggler_warning.count() > 0) {
    for (auto* watch : {&watch_, &stream_watch_}) {
      *watch =
          std::make_unique<StragglerWatch>(member_, options_.straggler_warning);
    }
  }
}

CollectiveRunner::~CollectiveRunner() {
  stream_works_ = nullptr;  // while what it uses is there
  if (job_watch_ != nullptr && process_group_ != nullptr)
    job_watch_->Remove(watched_as_);
}

void CollectiveRunner::ShareFate() {
  job_watch_ = std::make_shared<JobWatch>(member_);
}

absl::Status CollectiveRunner::Connect() {
  TANDEM_ASSIGN_OR_RETURN(process_group_,
                          ConnectGroup(member_, options_, job_watch_.get()));
  if (job_watch_ == nullptr) return absl::OkStatus();
  watched_as_ = job_watch_->Add([this](const std::string& why) {
    job_failed_ = true;
    BreakConnections(why);
  });
  return absl::OkStatus();
}

void CollectiveRunner::BelongTo(const CollectiveRunner& whole) {
  job_watch_ = whole.job_watch_;
  member_.job = whole.member_.job;
  member_.job_size = whole.member_.job_size;
  member_.shared = whole.member_.shared;
}

std::string CollectiveRunner::Call::What() const {
  const std::string what =
      sequence == 0 ? operation : absl::StrCat(operation, " #", sequence);
  return purpose ? absl::StrCat(what, " (", purpose(), ")") : what;
}

absl::Status CollectiveRunner::Broke(const absl::Status& status,
                                     const Call& call) {
  absl::MutexLock breaking(&breaking_);
  const absl::Status before = broken();
  if (!before.ok()) return before;
  const std::string what = call.What();
  const Failures failures = TellFailure(
      member_, what, absl::IsDeadlineExceeded(status) || job_failed_,
      Patience(options_.timeout),
      [&] { BreakConnections(std::string(status.message())); });
  const std::string head =
      absl::StrCat(what, " of group \"", member_.name, "\" on ",
                   member_.ToString(), " failed");
  absl::Status found =
      absl::AbortedError(absl::StrCat(head, ": ", failures.gave_up));
  if (failures.gave_up.empty()) {
    found = absl::Status(
        status.code(),
        absl::StrCat(head, " (timeout ",
                     absl::FormatDuration(absl::FromChrono(options_.timeout)),
                     failures.others.empty() ? "" : "; ", failures.others,
                     "): ", status.message()));
  }
  absl::MutexLock lock(&mutex_);
  // Abort may have come first.
  if (broken_.ok()) broken_ = found;
  return broken_;
}

absl::Status CollectiveRunner::broken() const {
  absl::MutexLock lock(&mutex_);
  return broken_;
}

absl::Status CollectiveRunner::Agree(const std::string& what,
                                     const at::Tensor& tensor,
                                     const CollectivePurpose& purpose) {
  if (check_ == nullptr) return absl::OkStatus();
  const absl::Status before = broken();
  if (!before.ok()) return before;
  std::string all = what;
  if (tensor.defined()) {
    absl::StrAppend(&all, " of ", DescribeTensor(tensor), " on ",
                    c10::DeviceTypeName(tensor.device().type(), true));
  }
  const absl::Status status = check_->Compare(all, purpose ? purpose() : "");
  if (status.ok()) return status;
  const Call call{what, sequence_ + 1, purpose};
  if (!absl::IsInvalidArgument(status)) return Broke(status, call);
  // Every rank has seen it: nobody needs to be told.
  const absl::Status found =
      Annotate(status, absl::StrCat("collective #", call.sequence,
                                    " of group \"", member_.name, "\""));
  {
    absl::MutexLock lock(&mutex_);
    broken_ = found;
  }
  BreakConnections(std::string(status.message()));
  return found;
}

void CollectiveRunner::BreakConnections(const std::string& reason) {
  // Nothing is left to do about an error of a group that is given up.
  CatchTorch([&] { AbortBackends(*process_group_, reason); }).IgnoreError();
}

absl::StatusOr<PendingCollective> CollectiveRunner::Start(
    const char* operation, const CollectivePurpose& purpose, Place place,
    Issue issue) {
  return StartCall({std::string(operation), ++sequence_, purpose}, place,
                   issue);
}

absl::StatusOr<PendingCollective> CollectiveRunner::StartMessage(
    const std::string& what, const CollectivePurpose& purpose, Place place,
    Issue issue) {
  return StartCall({what, 0, purpose}, place, issue);
}

absl::StatusOr<PendingCollective> CollectiveRunner::StartCall(Call call,
                                                              Place place,
                                                              Issue issue) {
  const absl::Status before = broken();
  if (!before.ok()) return before;
  PendingCollective pending;
  pending.started_ = Clock::now();
  auto issued = CatchTorchOr([&] {
    if (place != Place::kHost) return issue();
    absl::MutexLock lock(&IssueMutex());
    return issue();
  });
  if (!issued.ok()) return Broke(issued.status(), call);
  WorkPtr work = *std::move(issued);
  const auto end = std::make_shared<std::atomic<Clock::rep>>(0);
  pending.end_time_ = end;
  if (place != Place::kHost) {
    if (place == Place::kStream) {
      LookAfter(std::move(call), work, [end] { NoteEnd(end); });
    }
    pending.wait_ = [this, work] {
      const absl::Status ordered = CatchTorch([&] { work->wait(); });
      return ordered.ok() ? broken() : ordered;
    };
    return pending;
  }
  if (tells_end_) tells_end_ = NoteEndOnCompletion(*work, end).ok();
  pending.wait_ = [this, end, call = std::move(call), work] {
    absl::Status status = WaitFor(call, *work, watch_.get());
    NoteEnd(end);
    return status;
  };
  return pending;
}

absl::Status CollectiveRunner::WaitFor(const Call& call, c10d::Work& work,
                                       StragglerWatch* watch) {
  const JobWatch::Waiting waiting(job_watch_.get());
  const absl::Status status =
      watch != nullptr && call.sequence > 0
          ? watch->Wait(work, call.sequence, [&] { return call.What(); })
          : CatchTorch([&] { work.wait(); });
  return status.ok() ? status : Broke(status, FirstNotDone(call));
}

absl::Status CollectiveRunner::Run(const char* operation,
                                   const CollectivePurpose& purpose,
                                   Place place, Issue issue) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                          Start(operation, purpose, place, issue));
  return pending.Wait();
}

void CollectiveRunner::Abort(const absl::Status& reason) {
  CHECK(!reason.ok()) << "a rank gives up for a reason";
  {
    absl::MutexLock lock(&mutex_);
    if (!broken_.ok()) return;
    broken_ = reason;
  }
  // The note first: who sees the connection break looks for it.
  const std::string why(reason.message());
  TellGivingUp(member_, why);
  BreakConnections(why);
  AwaitListeners(member_, Patience(options_.timeout));
}

}  // namespace tandem
