#include "core/comm/collective_runner.h"

#include <c10/core/StreamGuard.h>
#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "core/backend/backend.h"
#include "core/backend/host_works.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/comm/group_connection.h"
#include "core/flight/dump_file.h"
#include "core/health/collective_check.h"
#include "core/health/group_failures.h"
#include "core/health/job_watch.h"
#include "core/health/straggler_watch.h"
#include "core/shm/completion_notice.h"

namespace tandem {

std::optional<DeviceMoment> WorkTimer::EndOf(c10d::Work& work,
                                             c10::Device device) {
  const absl::StatusOr<DeviceMoment> end = CatchTorchOr([&] {
    OwnStream& stream = streams_[device.index()];
    if (stream == nullptr) stream = TakeStream(device);
    const c10::StreamGuard guard(*stream);
    work.synchronize();
    return DeviceMoment::Now(device);
  });
  if (!end.ok()) return std::nullopt;
  return *end;
}

namespace {

using Clock = PendingCollective::Clock;
using EndTime = std::shared_ptr<std::atomic<Clock::rep>>;

// For the other ranks to come to a group's end as well.
constexpr std::chrono::seconds kFarewell(10);

// The first to tell is right: the others come later.
void NoteEnd(std::atomic<Clock::rep>& end) {
  Clock::rep unknown = 0;
  end.compare_exchange_strong(unknown, Clock::now().time_since_epoch().count());
}

// {0, 1, ..., size - 1}.
std::vector<int> AllRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// When a call has ended, and how.
struct Ending {
  std::atomic<Clock::rep> time{0};
  CallFlights flights;

  void Tell(bool succeeded) {
    NoteEnd(time);
    if (succeeded) flights.Complete();
  }
};

// Has `ending` told by the thread that completes the work. Unimplemented where
// the backend has no futures.
absl::Status NoteEndOnCompletion(const c10::intrusive_ptr<c10d::Work>& work,
                                 const std::shared_ptr<Ending>& ending) {
  if (auto* const notifier = dynamic_cast<NotifiesCompletion*>(work.get())) {
    // The thread that runs a work may outlive one that nobody waits for.
    const c10::weak_intrusive_ptr<c10d::Work> weak(work);
    notifier->OnCompletion([ending, weak] {
      const auto alive = weak.lock();
      ending->Tell(alive != nullptr && alive->isSuccess());
    });
    return absl::OkStatus();
  }
  return CatchTorch([&] {
    work->getFuture()->addCallback(
        [ending](c10::ivalue::Future& future) {
          ending->Tell(!future.hasError());
        },
        /*uses_future=*/false);
  });
}

}  // namespace

CollectiveRunner::CollectiveRunner(GroupMember member,
                                   const CommunicatorOptions& options)
    : member_(std::move(member)), options_(options) {
  if (options_.straggler_warning.count() > 0) {
    for (auto* watch : {&watch_, &stream_watch_}) {
      *watch =
          std::make_unique<StragglerWatch>(member_, options_.straggler_warning);
    }
  }
}

CollectiveRunner::~CollectiveRunner() {
  stream_works_ = nullptr;  // while what it uses is there
  if (process_group_ == nullptr) return;
  if (job_watch_ != nullptr) {
    job_watch_->Remove(watched_as_);
    if (job_watch_->HasFailed()) return;
  }
  if (!broken().ok()) return;
  // Whoever waits for this rank in vain hears of it before this rank waits.
  if (check_ != nullptr) check_->Leave();
  const std::chrono::milliseconds patience =
      std::min<std::chrono::milliseconds>(options_.timeout, kFarewell);
  CatchTorch([&] { CloseBackends(*process_group_, patience); }).IgnoreError();
}

void CollectiveRunner::WatchJob() {
  job_watch_ = std::make_shared<JobWatch>(member_);
}

absl::Status CollectiveRunner::Connect(const std::string& key) {
  const std::vector<int> ranks = member_.NamesOf(AllRanks(member_.size));
  flight_group_ = std::make_shared<FlightGroup>(
      member_.name, absl::StrCat(key, " of {", absl::StrJoin(ranks, ", "), "}"),
      ranks);
  TANDEM_ASSIGN_OR_RETURN(process_group_,
                          ConnectGroup(member_, options_, job_watch_.get()));
  if (options_.check_collectives) BeginChecks();
  if (job_watch_ == nullptr) return absl::OkStatus();
  watched_as_ = job_watch_->Add([this](const std::string& why) {
    *job_failed_ = true;
    BreakConnections(why);
  });
  return absl::OkStatus();
}

// A rank that waits for another to start something waits for no connection,
// which would break: what is known of the others is asked for.
void CollectiveRunner::BeginChecks() {
  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group(process_group_);
  const auto presence = [group, job_failed = job_failed_] {
    if (*job_failed) return absl::UnavailableError("the job has failed");
    const auto alive = group.lock();
    return alive == nullptr ? absl::OkStatus() : CheckPeers(*alive);
  };
  check_ =
      std::make_unique<CollectiveCheck>(member_, options_.timeout, presence);
}

void CollectiveRunner::WatchJobWith(const CollectiveRunner& whole) {
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

absl::Status CollectiveRunner::broken() const {
  absl::MutexLock lock(&mutex_);
  return broken_;
}

absl::StatusOr<PendingCollective> CollectiveRunner::Start(
    const FlightOperation& operation, const CollectivePurpose& purpose,
    Place place, Issue issue) {
  Call call{operation.name, ++sequence_, purpose,
            std::exchange(announced_, CallFlights())};
  if (call.flights.empty()) {
    call.flights.Add(FlightRecorder::OfProcess().Schedule(
        flight_group_, operation, sequence_));
  }
  return StartCall(std::move(call), place, issue);
}

absl::StatusOr<PendingCollective> CollectiveRunner::StartMessage(
    const std::string& what, absl::Span<const FlightOperation> messages,
    const CollectivePurpose& purpose, Place place, Issue issue) {
  Call call{what, 0, purpose, {}};
  for (const FlightOperation& each : messages) {
    call.flights.Add(FlightRecorder::OfProcess().Schedule(flight_group_, each));
  }
  return StartCall(std::move(call), place, issue);
}

absl::StatusOr<PendingCollective> CollectiveRunner::StartCall(Call call,
                                                              Place place,
                                                              Issue issue) {
  const absl::Status before = broken();
  if (!before.ok()) return before;
  PendingCollective pending;
  pending.started_ = Clock::now();
  auto issued = CatchTorchOr([&] {
    if (place.kind != Place::kHost) return issue();
    absl::MutexLock lock(&IssueMutex());
    return issue();
  });
  if (!issued.ok()) return Broke(issued.status(), call);
  call.flights.Start();
  WorkPtr work = *std::move(issued);
  const auto ending = std::make_shared<Ending>();
  ending->flights = call.flights;
  pending.end_time_ = EndTime(ending, &ending->time);
  if (place.kind == Place::kStream) {
    pending.end_moment_ = EndOf(call, *work, place.device);
    Monitor(std::move(call), work, [ending] { NoteEnd(ending->time); });
    pending.wait_ = [this, work] {
      const absl::Status ordered = CatchTorch([&] { work->wait(); });
      return ordered.ok() ? broken() : ordered;
    };
    return pending;
  }
  if (tells_end_) tells_end_ = NoteEndOnCompletion(work, ending).ok();
  pending.wait_ = [this, ending, call = std::move(call), work] {
    absl::Status status = WaitFor(call, *work, watch_.get());
    NoteEnd(ending->time);
    return status;
  };
  return pending;
}

absl::Status CollectiveRunner::WaitFor(const Call& call, c10d::Work& work,
                                       StragglerWatch* watch) {
  const JobWatch::Waiting waiting(job_watch_.get());
  call.flights.Await();
  const absl::Status status =
      watch != nullptr && call.sequence > 0
          ? watch->Wait(work, call.sequence, [&] { return call.What(); })
          : CatchTorch([&] { work.wait(); });
  if (!status.ok()) return Broke(status, FirstNotDone(call));
  call.flights.Complete();
  return status;
}

absl::Status CollectiveRunner::Run(const FlightOperation& operation,
                                   const CollectivePurpose& purpose,
                                   Place place, Issue issue) {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                          Start(operation, purpose, place, issue));
  return pending.Wait();
}

absl::Status CollectiveRunner::Broke(const absl::Status& status,
                                     const Call& call) {
  absl::MutexLock breaking(&breaking_);
  const absl::Status before = broken();
  if (!before.ok()) return before;
  const std::string what = call.What();
  const bool timed_out = absl::IsDeadlineExceeded(status);
  // At once: a launcher may end this process when another rank has ended.
  DumpFlightOfFailure(
      timed_out ? FlightTrigger::kTimeout : FlightTrigger::kFailed,
      absl::StrCat(what, " of group \"", member_.name,
                   "\": ", status.message()));
  const Failures failures = ReportFailure(
      member_, what, timed_out || *job_failed_, Patience(options_.timeout),
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

absl::Status CollectiveRunner::Agree(const std::string& what,
                                     const FlightOperation& operation,
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
  Call call{what, sequence_ + 1, purpose, {}};
  call.flights.Add(FlightRecorder::OfProcess().Schedule(
      flight_group_, operation, call.sequence));
  call.flights.Await();
  const absl::Status status = [&] {
    const JobWatch::Waiting waiting(job_watch_.get());
    return check_->Compare(all, purpose ? purpose() : "");
  }();
  if (status.ok()) {
    // Without elements there is nothing to start.
    if (!tensor.defined() || tensor.numel() > 0) {
      announced_ = call.flights;
    } else {
      call.flights.Complete();
    }
    return status;
  }
  if (!absl::IsInvalidArgument(status)) return Broke(status, call);
  // Every rank has seen it: nobody needs to be told.
  const absl::Status found =
      Annotate(status, absl::StrCat("collective #", call.sequence,
                                    " of group \"", member_.name, "\""));
  DumpFlightOfFailure(FlightTrigger::kFailed, std::string(found.message()));
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

void CollectiveRunner::Abort(const absl::Status& reason) {
  CHECK(!reason.ok()) << "a rank gives up for a reason";
  {
    absl::MutexLock lock(&mutex_);
    if (!broken_.ok()) return;
    broken_ = reason;
  }
  if (!absl::IsCancelled(reason)) {
    DumpFlightOfFailure(FlightTrigger::kGaveUp, std::string(reason.message()));
  }
  // The note first: who sees the connection break looks for it.
  const std::string why(reason.message());
  ReportGivingUp(member_, why);
  BreakConnections(why);
  AwaitListeners(member_, Patience(options_.timeout));
}

}  // namespace tandem
