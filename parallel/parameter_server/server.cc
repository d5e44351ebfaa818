#include "parallel/parameter_server/server.h"

#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/parameter_server/served_layout.h"

namespace tandem {
namespace {

constexpr int kWorkersRank = 1;  // in the group of the two
constexpr absl::Duration kKeepAlive = absl::Milliseconds(250);

using Kind = ServerRequest::Kind;

}  // namespace

WorkerProgress::WorkerProgress(int workers, int64_t max_staleness)
    : max_staleness_(max_staleness),
      pushed_(static_cast<size_t>(workers), 0),
      lives_(static_cast<size_t>(workers), true) {
  CHECK_GE(workers, 1);
  CHECK_GE(max_staleness, kUnboundedStaleness);
}

WorkerProgress::Push WorkerProgress::Classify(int worker, int64_t step) const {
  const int64_t done = pushed(worker);
  if (step <= done) return Push::kDuplicate;
  return step == done + 1 ? Push::kNext : Push::kGap;
}

void WorkerProgress::ResumeAt(int64_t steps) {
  std::fill(pushed_.begin(), pushed_.end(), steps);
}

bool WorkerProgress::MayGoOn(int worker) const {
  if (max_staleness_ == kUnboundedStaleness) return true;
  return pushed(worker) - slowest() <= max_staleness_;
}

int WorkerProgress::living() const {
  return static_cast<int>(std::count(lives_.begin(), lives_.end(), true));
}

int64_t WorkerProgress::fastest() const {
  return *std::max_element(pushed_.begin(), pushed_.end());
}

int64_t WorkerProgress::slowest() const {
  int64_t slowest = -1;
  for (int w = 0; w < workers(); ++w) {
    if (!lives(w)) continue;
    slowest = slowest < 0 ? pushed(w) : std::min(slowest, pushed(w));
  }
  return slowest;
}

ParameterServer::ParameterServer(Setup setup,
                                 std::unique_ptr<ServedSlice> served)
    : setup_(std::move(setup)),
      synchronous_(setup_.max_staleness == 0),
      desks_(setup_.workers.size()),
      served_(std::move(served)),
      progress_(static_cast<int>(setup_.workers.size()), setup_.max_staleness) {
  for (int w = 0; w < static_cast<int>(setup_.workers.size()); ++w) {
    threads_.emplace_back([this, w] { Serve(w); });
  }
}

ParameterServer::~ParameterServer() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  for (std::thread& each : threads_) each.join();
}

void ParameterServer::Serve(int worker) {
  const absl::Status ended = CatchTorch([&] { return ServeRequests(worker); });
  // A worker that still asks gets the reason; one whose connection broke does
  // not ask.
  if (!ended.ok()) setup_.workers[static_cast<size_t>(worker)]->Abort(ended);
  Leave(worker, ended);
}

absl::StatusOr<at::Tensor> ParameterServer::ReceivePayload(
    const ServerRequest& request, Communicator& group) const {
  int64_t bytes = 0;
  if (!request.again && request.kind == Kind::kPush) {
    bytes = GradientMessage::BytesFor(*setup_.slice);
  } else if (!request.again && request.kind == Kind::kMeet) {
    bytes = setup_.kept_bytes;
  }
  const at::Tensor payload = at::empty({bytes}, at::kByte);
  TANDEM_RETURN_IF_ERROR(ReceiveBytes(
      payload, kWorkersRank, group, absl::StrCat("request ", request.number)));
  return payload;
}

absl::Status ParameterServer::ServeRequests(int worker) {
  Communicator& group = *setup_.workers[static_cast<size_t>(worker)];
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(const ServerRequest request,
                            ReceiveRequest(kWorkersRank, group));
    if (request.kind == Kind::kBye) return absl::OkStatus();
    if (request.kind == Kind::kLost) {
      absl::MutexLock lock(&mutex_);
      Fail(absl::UnavailableError(absl::StrCat(
          setup_.server_names.at(static_cast<size_t>(request.number)),
          " has died, as worker ", worker,
          " found: start the job again from "
          "its last checkpoint")));
      return absl::OkStatus();
    }
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor payload,
                            ReceivePayload(request, group));
    TANDEM_ASSIGN_OR_RETURN(const Reply reply,
                            Handle(worker, request, payload));
    TANDEM_RETURN_IF_ERROR(Send(reply.answer, kWorkersRank, group));
    if (!reply.payload.defined()) continue;
    TANDEM_RETURN_IF_ERROR(
        SendBytes(reply.payload, kWorkersRank, group,
                  absl::StrCat("values of version ", reply.answer.version)));
  }
}

absl::StatusOr<ParameterServer::Reply> ParameterServer::Handle(
    int worker, const ServerRequest& request, const at::Tensor& payload) {
  absl::MutexLock lock(&mutex_);
  if (!request.again) {
    TANDEM_RETURN_IF_ERROR(Note(worker, request, payload));
    Advance();
  }
  // This rank's thread will let nobody go on any more.
  const auto refuses = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ && own_left_ < met_ &&
           desks_[static_cast<size_t>(worker)].waiting.has_value();
  };
  const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || CanAnswer(worker, request) || refuses();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&over), kKeepAlive);
  if (!failed_.ok()) return failed_;
  if (CanAnswer(worker, request)) return AnswerTo(worker, request);
  if (!refuses()) return Reply();
  return absl::CancelledError("the server has ended and takes no more steps");
}

absl::Status ParameterServer::Note(int worker, const ServerRequest& request,
                                   const at::Tensor& payload) {
  Desk& desk = desks_[static_cast<size_t>(worker)];
  if (request.kind == Kind::kMeet) {
    desk.came = request.number;
    desk.kept = payload;
  } else if (request.kind == Kind::kSum) {
    desk.sums = request.number;
    sums_[request.number][worker] = request.score.score;
  } else if (request.kind == Kind::kWeigh) {
    desk.weighed = request.number;
    // All have had the answers for earlier steps.
    weights_.erase(weights_.begin(), weights_.lower_bound(request.number));
    weights_[request.number][worker] = request.weight;
  } else if (request.kind == Kind::kPush) {
    switch (progress_.Classify(worker, request.number)) {
      case WorkerProgress::Push::kNext:
        desk.waiting = Push{request, payload};
        break;
      case WorkerProgress::Push::kDuplicate:
        ++duplicates_;
        break;
      case WorkerProgress::Push::kGap:
        return absl::InternalError(absl::StrCat(
            "worker ", worker, " pushed step ", request.number, " after step ",
            progress_.pushed(worker), ": what lies between is missing"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
