// Collective runner: starts the collectives of one group of ranks, waits for
// them, and makes a Status of what goes wrong: the part of a Communicator that
// knows no tensor.

#ifndef TANDEM_CORE_COMM_COLLECTIVE_RUNNER_H_
#define TANDEM_CORE_COMM_COLLECTIVE_RUNNER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/backend/communicator_options.h"
#include "core/comm/pending_collective.h"
#include "core/device/device_moment.h"
#include "core/device/own_stream.h"
#include "core/flight/recorder.h"
#include "core/health/group_member.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace tandem {

// Work timer: tells when a work that streams run will have ended, by the
// device's clock. A thread that polls a work sees its end milliseconds late,
// and behind those that were started before; the timer does not. Not
// thread-safe.
class WorkTimer {
 public:
  // The end of a work that orders streams when it is waited for, as NCCL's do:
  // a stream of the timer's own waits for it, and for nothing else. Nothing
  // where the work has failed.
  //
  // What c10d keeps alive until a stream has waited for the work (tensors that
  // go in, and do not come out) it keeps no longer.
  std::optional<DeviceMoment> EndOf(c10d::Work& work, c10::Device device);

 private:
  std::map<c10::DeviceIndex, OwnStream> streams_;
};

class CollectiveCheck;
class JobWatch;
class StragglerWatch;
class WorkThread;

// For a group of at least two ranks. One thread at a time starts collectives;
// messages may be started, and anything waited for, by any thread. It must
// outlive the Wait of what it started. After the first failure everything fails
// with that.
class CollectiveRunner {
 public:
  using Issue = absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()>;
  // The place where it runs: threads of the host's backend, or a stream of a
  // device's.
  struct Place {
    enum Kind { kHost, kStream };
    Kind kind = kHost;
    c10::Device device = c10::kCPU;  // the stream's device
  };

  CollectiveRunner(GroupMember member, const CommunicatorOptions& options);
  ~CollectiveRunner();

  // Both before Connect. The ranks of this group, the job's, share their fate
  // (core/health/job_watch.h).
  void WatchJob();
  // This group is part of that one, or of what that one is part of.
  void WatchJobWith(const CollectiveRunner& whole);

  // ConnectGroup (core/comm/group_connection.h); before anything is started.
  // `key` is the group's name among all that were ever made.
  absl::Status Connect(const std::string& key);
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const {
    return process_group_;
  }

  // With check_collectives: compares what all ranks are about to start. `what`
  // is the operation, with the root if it has one; `tensor` may be undefined.
  absl::Status Agree(const std::string& what, const FlightOperation& operation,
                     const at::Tensor& tensor,
                     const CollectivePurpose& purpose);

  // Calls `issue`, under IssueMutex() if the host runs it.
  absl::StatusOr<PendingCollective> Start(const FlightOperation& operation,
                                          const CollectivePurpose& purpose,
                                          Place place, Issue issue);
  // Messages between two ranks, in one work: `what` says to whom or from whom.
  // Others may start fewer or more, so that it has no number.
  absl::StatusOr<PendingCollective> StartMessage(
      const std::string& what, absl::Span<const FlightOperation> messages,
      const CollectivePurpose& purpose, Place place, Issue issue);
  // Starts and waits.
  absl::Status Run(const FlightOperation& operation,
                   const CollectivePurpose& purpose, Place place, Issue issue);
  // Communicator::Synchronize.
  absl::Status Synchronize();

  // Communicator::Abort.
  void Abort(const absl::Status& reason);

 private:
  // One that was started.
  struct Call {
    std::string operation;
    int64_t sequence;  // 0: a message
    CollectivePurpose purpose;
    CallFlights flights;

    std::string What() const;  // "all-reduce #3 (bucket 1 of step 4)"
  };

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct StreamCall {
    Call call;
    WorkPtr work;
  };

  absl::Status broken() const;
  // With check_collectives, from Connect on.
  void BeginChecks();

  absl::StatusOr<PendingCollective> StartCall(Call call, Place place,
                                              Issue issue);
  absl::Status WaitFor(const Call& call, c10d::Work& work,
                       StragglerWatch* watch);
  // Has a thread look after a work that a stream runs, and find its errors.
  void Monitor(Call call, const WorkPtr& work, std::function<void()> end);
  // By the device's clock, where the work itself does not tell it.
  std::optional<DeviceMoment> EndOf(const Call& call, c10d::Work& work,
                                    c10::Device device);
  // What failed first when the host's `call` did: what a stream was given
  // before and has not done waits for the same ranks.
  Call FirstNotDone(const Call& call);
  // Makes a message of a failure, tells it to the others, and keeps it as what
  // broke the group.
  absl::Status Broke(const absl::Status& status, const Call& call);
  // What runs in this group, here and on other ranks, ends with an error.
  void BreakConnections(const std::string& reason);

  GroupMember member_;
  std::shared_ptr<FlightGroup> flight_group_;
  CommunicatorOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  std::unique_ptr<CollectiveCheck> check_;        // null: unchecked
  std::unique_ptr<StragglerWatch> watch_;         // null: no warnings
  std::unique_ptr<StragglerWatch> stream_watch_;  // of works on streams
  std::shared_ptr<JobWatch> job_watch_;           // null: nobody looks
  int watched_as_ = 0;
  // Shared with threads that may be left behind.
  const std::shared_ptr<std::atomic<bool>> job_failed_ =
      std::make_shared<std::atomic<bool>>(false);
  int64_t sequence_ = 0;                      // collectives so far
  CallFlights announced_;                     // what Agree has let pass
  std::atomic<bool> tells_end_{true};         // do works have futures?
  WorkTimer timer_;                           // of collectives on streams
  std::unique_ptr<WorkThread> stream_works_;  // in the order of their start
  absl::Mutex breaking_;  // held while a failure is looked into
  mutable absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(breaking_);
  std::deque<StreamCall> on_streams_ ABSL_GUARDED_BY(mutex_);  // not looked at
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // the first failure
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_COLLECTIVE_RUNNER_H_
