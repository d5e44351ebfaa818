// Parameter server: owns a slice, applies workers' pushes, and answers.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_SERVER_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_SERVER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "parallel/parameter_server/messages.h"
#include "parallel/parameter_server/served_slice.h"
#include "parallel/step/step_score.h"

namespace tandem {

// No bound: workers never wait for each other.
inline constexpr int64_t kUnboundedStaleness = -1;

// Counts pushes. Steps count from 1: a worker's k-th push is that of its step
// k. It may begin a step while it has done at most `max_staleness` more than
// the slowest living worker (Ho et al., "More effective distributed ML via a
// stale synchronous parallel parameter server", NIPS 2013); with 0 all are in
// the same step. Pure arithmetic; not thread-safe.
class WorkerProgress {
 public:
  // Requires workers >= 1 and max_staleness >= 0 or kUnboundedStaleness.
  WorkerProgress(int workers, int64_t max_staleness);

  // What a push that says it is of `step` is.
  enum class Push {
    kNext,       // the one that is due
    kDuplicate,  // has been here before: to be applied no second time
    kGap,        // some before it are missing
  };
  Push Classify(int worker, int64_t step) const;

  // The push that was due has come.
  void Advance(int worker) { ++pushed_[static_cast<size_t>(worker)]; }
  // Gone for good: nobody waits for it any more.
  void Drop(int worker) { lives_[static_cast<size_t>(worker)] = false; }
  // All have done so many.
  void ResumeAt(int64_t steps);

  bool MayGoOn(int worker) const;

  int workers() const { return static_cast<int>(pushed_.size()); }
  int living() const;
  bool lives(int worker) const { return lives_[static_cast<size_t>(worker)]; }
  int64_t pushed(int worker) const {
    return pushed_[static_cast<size_t>(worker)];
  }
  // The fewest steps that a living worker has done; -1: nobody lives.
  int64_t slowest() const;
  // The most that any has done, whether it lives or not.
  int64_t fastest() const;

 private:
  int64_t max_staleness_;
  std::vector<int64_t> pushed_;
  std::vector<bool> lives_;
};

// A thread for each worker takes its requests (messages.h) and waits until they
// can be answered; one mutex guards all that they have in common. The rank's
// own thread calls the methods, and is one of those who meet: from a meeting
// until its next AwaitStep no push is applied, so that it can save what is
// there. That begins with the server's making, when it may load a checkpoint.
class ParameterServer {
 public:
  struct Setup {
    const Slice* slice;  // this server's; like all, it must outlive the server
    int64_t kept_bytes;  // of what workers bring to a meeting; 0: nothing
    int64_t max_staleness;
    // By worker: it and this rank, which is rank 0 of the two.
    std::vector<std::unique_ptr<Communicator>> workers;
    // What messages call the other servers: "server 1 (rank 1 of the job)".
    std::vector<std::string> server_names;
  };

  ParameterServer(Setup setup, std::unique_ptr<ServedSlice> served);
  // Waits until the workers have left. One that wants something that only this
  // rank's thread could give is told that it gets nothing any more.
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Until every living worker has done `step` steps: what that step came to, in
  // the order of workers, whose added losses are means over their samples.
  // Unavailable when no worker is left, or another server has died; errors of
  // the update.
  absl::StatusOr<StepScore> AwaitStep(int64_t step);
  // Until every living worker has come to the next meeting.
  absl::Status AwaitMeeting();
  // Until every living worker has given its score for the next sum.
  absl::StatusOr<Score> AwaitSum();
  void ResumeAt(int64_t steps);

  // Between a meeting, or the beginning, and AwaitStep.
  ServedSlice& served() { return *served_; }
  // What workers keep, as the first living one had it at the last meeting.
  void set_kept(at::Tensor kept);
  at::Tensor kept() const;

  // For a report.
  std::vector<std::pair<std::string, double>> Measurements() const;

 private:
  struct Push {
    ServerRequest request;
    at::Tensor message;
  };
  // What is known of one worker.
  struct Desk {
    std::optional<Push> waiting;  // has come, and is not applied yet
    int64_t came = 0;             // to so many meetings
    int64_t left = 0;             // of which with its values in hand
    int64_t sums = 0;             // that it has asked for
    int64_t weighed = 0;          // the last step whose weight it has told
    at::Tensor kept;
  };
  struct Reply {
    ServerAnswer answer;
    at::Tensor payload;  // undefined: none
  };

  // On the worker's thread.
  void Serve(int worker);
  absl::Status ServeRequests(int worker);
  absl::StatusOr<at::Tensor> ReceivePayload(const ServerRequest& request,
                                            Communicator& group) const;
  absl::StatusOr<Reply> Handle(int worker, const ServerRequest& request,
                               const at::Tensor& payload);

  absl::Status Note(int worker, const ServerRequest& request,
                    const at::Tensor& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanAnswer(int worker, const ServerRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Reply AnswerTo(int worker, const ServerRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(int worker, const Push& push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(int worker, const absl::Status& why);
  // What has become possible: pushes are taken, a round's update is made, a
  // meeting takes place, a sum is complete.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Are pushes to wait, for this rank's thread or for workers at a meeting?
  bool Holds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllLiving(absl::FunctionRef<bool(int worker)> fits) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitOwn(absl::FunctionRef<bool()> done, const char* what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Setup setup_;
  const bool synchronous_;
  mutable absl::Mutex mutex_;
  std::vector<Desk> desks_ ABSL_GUARDED_BY(mutex_);  // by worker
  std::unique_ptr<ServedSlice> served_;              // see served()
  WorkerProgress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Push> round_ ABSL_GUARDED_BY(mutex_);  // by worker
  std::map<int64_t, std::map<int, StepScore>> scores_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::map<int, double>> weights_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::map<int, Score>> sums_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rounds_ ABSL_GUARDED_BY(mutex_) = 0;  // applied, and steps resumed at
  int64_t met_ ABSL_GUARDED_BY(mutex_) = 0;     // meetings that took place
  int64_t summed_ ABSL_GUARDED_BY(mutex_) = 0;  // sums that are complete
  at::Tensor kept_ ABSL_GUARDED_BY(mutex_);
  // This rank's thread: meetings that it came to, and that it has left.
  int64_t own_came_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t own_left_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t own_sums_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // Measured:
  int64_t pushes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t staleness_sum_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t staleness_max_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;  // by worker; start last
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_SERVER_H_
