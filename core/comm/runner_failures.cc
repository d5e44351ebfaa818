// What becomes of a group of ranks when something fails: here, and on the
// others.

#include <glog/logging.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/backend/backend.h"
#include "core/base/describe_tensor.h"
#include "core/base/torch_status.h"
#include "core/comm/collective_runner.h"
#include "core/comm/group_connection.h"
#include "core/flight/dump_file.h"
#include "core/health/collective_check.h"
#include "core/health/job_watch.h"
#include "core/health/roll_call.h"

namespace tandem {

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
  const Failures failures = TellFailure(
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
  TellGivingUp(member_, why);
  BreakConnections(why);
  AwaitListeners(member_, Patience(options_.timeout));
}

}  // namespace tandem
