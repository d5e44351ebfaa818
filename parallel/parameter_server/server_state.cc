// What a parameter server's workers have in common, under its mutex.

#include <ATen/ops/cat.h>
#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/parameter_server/server.h"
#include "parallel/step/step_score.h"

namespace tandem {
namespace {

// In the order of workers.
Score SumScores(const std::map<int, Score>& scores) {
  Score sum;
  for (const auto& each : scores) sum += each.second;
  return sum;
}

// Workers have as many samples each.
StepScore JointScore(const std::map<int, StepScore>& scores) {
  StepScore all;
  for (const auto& each : scores) {
    const StepScore& worker = each.second;
    all.score += worker.score;
    for (const auto& [name, loss] : worker.auxiliary_losses) {
      all.auxiliary_losses[name] += loss / static_cast<double>(scores.size());
    }
    for (const auto& [name, sum] : worker.sums) all.sums[name] += sum;
  }
  return all;
}

double MeanValue(const std::map<int, double>& weights) {
  double sum = 0;
  for (const auto& each : weights) sum += each.second;
  return sum / static_cast<double>(weights.size());
}

}  // namespace

bool ParameterServer::AllLiving(
    absl::FunctionRef<bool(int worker)> fits) const {
  for (int w = 0; w < progress_.workers(); ++w) {
    if (progress_.lives(w) && !fits(w)) return false;
  }
  return progress_.living() > 0;
}

bool ParameterServer::Holds() const {
  if (own_left_ < met_) return true;
  for (int w = 0; w < progress_.workers(); ++w) {
    if (progress_.lives(w) && desks_[static_cast<size_t>(w)].left < met_) {
      return true;
    }
  }
  return false;
}

bool ParameterServer::CanAnswer(int worker,
                                const ServerRequest& request) const {
  switch (request.kind) {
    case ServerRequest::Kind::kPush:
      return progress_.pushed(worker) >= request.number &&
             progress_.MayGoOn(worker);
    case ServerRequest::Kind::kMeet:
      return met_ >= request.number;
    case ServerRequest::Kind::kWeigh:
      return AllLiving([&](int w) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return desks_[static_cast<size_t>(w)].weighed >= request.number ||
               progress_.pushed(w) >= request.number;
      });
    default:
      return summed_ >= request.number;
  }
}

ParameterServer::Reply ParameterServer::AnswerTo(int worker,
                                                 const ServerRequest& request) {
  Reply reply;
  reply.answer.ready = true;
  reply.answer.version = version_;
  if (request.kind == ServerRequest::Kind::kSum) {
    reply.answer.score = SumScores(sums_[request.number]);
    return reply;
  }
  if (request.kind == ServerRequest::Kind::kWeigh) {
    reply.answer.weight = MeanValue(weights_[request.number]);
    return reply;
  }
  reply.payload = served_->Values();
  if (request.kind == ServerRequest::Kind::kMeet) {
    if (setup_.kept_bytes > 0) reply.payload = at::cat({reply.payload, kept_});
    desks_[static_cast<size_t>(worker)].left = request.number;
    Advance();
  }
  return reply;
}

void ParameterServer::Take(int worker, const Push& push) {
  ++pushes_;
  const int64_t staleness = version_ - push.request.version;
  staleness_sum_ += staleness;
  staleness_max_ = std::max(staleness_max_, staleness);
  scores_[push.request.number][worker] = push.request.score;
  progress_.Advance(worker);
  if (synchronous_) {
    round_[worker] = push;
    return;
  }
  if (push.request.skips) return;
  ++version_;
  const absl::Status applied = served_->Apply(
      {push.message}, push.request.learning_rate / progress_.living());
  if (!applied.ok()) Fail(applied);
}

// Synchronously: the gradients of one step, of all who have pushed it and do
// not skip it.
void ParameterServer::ApplyRound() {
  if (round_.empty() || progress_.slowest() <= rounds_) return;
  std::vector<at::Tensor> messages;
  double rate = 0;
  for (const auto& each : round_) {
    const Push& push = each.second;
    if (push.request.skips) continue;
    if (messages.empty()) rate = push.request.learning_rate;
    messages.push_back(push.message);
  }
  round_.clear();
  ++rounds_;
  if (messages.empty()) return;
  ++version_;
  const absl::Status applied = served_->Apply(messages, rate);
  if (!applied.ok()) Fail(applied);
}

void ParameterServer::Advance() {
  for (int w = 0; w < progress_.workers() && !Holds(); ++w) {
    std::optional<Push>& waiting = desks_[static_cast<size_t>(w)].waiting;
    if (!waiting.has_value()) continue;
    const Push push = *std::exchange(waiting, std::nullopt);
    Take(w, push);
  }
  ApplyRound();
  const auto desk = [this](int w)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> const Desk& {
    return desks_[static_cast<size_t>(w)];
  };
  if (AllLiving([&](int w) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return desk(w).came > met_;
      })) {
    ++met_;
    for (int w = progress_.workers() - 1; w >= 0; --w) {
      if (progress_.lives(w)) kept_ = desk(w).kept;
    }
  }
  if (AllLiving([&](int w) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return desk(w).sums > summed_;
      })) {
    ++summed_;
  }
}

void ParameterServer::Fail(const absl::Status& why) {
  if (failed_.ok()) failed_ = why;
}

void ParameterServer::Leave(int worker, const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (!why.ok() && failed_.ok()) {
    LOG(WARNING) << "worker " << worker << " is lost after step "
                 << progress_.pushed(worker)
                 << "; training goes on without it: " << why.message();
  }
  progress_.Drop(worker);
  desks_[static_cast<size_t>(worker)].waiting.reset();
  Advance();
}

absl::Status ParameterServer::AwaitOwn(absl::FunctionRef<bool()> done,
                                       const char* what) {
  const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failed_.ok() || progress_.living() == 0 || done();
  };
  mutex_.Await(absl::Condition(&over));
  if (!failed_.ok()) return failed_;
  if (done()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no worker is left to ", what,
                                             ": all ", progress_.workers(),
                                             " have ended or died"));
}

absl::StatusOr<StepScore> ParameterServer::AwaitStep(int64_t step) {
  absl::MutexLock lock(&mutex_);
  own_left_ = own_came_;
  Advance();
  // Workers that have ended in order need not be here any more.
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (progress_.living() > 0 ? progress_.slowest()
                                   : progress_.fastest()) >= step;
  };
  TANDEM_RETURN_IF_ERROR(AwaitOwn(done, "train"));
  const StepScore score = JointScore(scores_[step]);
  scores_.erase(scores_.begin(), scores_.upper_bound(step));
  return score;
}

absl::Status ParameterServer::AwaitMeeting() {
  absl::MutexLock lock(&mutex_);
  ++own_came_;
  return AwaitOwn(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return met_ >= own_came_; },
      "meet");
}

absl::StatusOr<Score> ParameterServer::AwaitSum() {
  absl::MutexLock lock(&mutex_);
  const int64_t sum = ++own_sums_;
  TANDEM_RETURN_IF_ERROR(AwaitOwn(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return summed_ >= sum; },
      "evaluate"));
  return SumScores(sums_[sum]);
}

void ParameterServer::ResumeAt(int64_t steps) {
  absl::MutexLock lock(&mutex_);
  progress_.ResumeAt(steps);
  rounds_ = steps;
}

void ParameterServer::set_kept(at::Tensor kept) {
  absl::MutexLock lock(&mutex_);
  kept_ = std::move(kept);
}

at::Tensor ParameterServer::kept() const {
  absl::MutexLock lock(&mutex_);
  return kept_;
}

std::vector<std::pair<std::string, double>> ParameterServer::Measurements()
    const {
  absl::MutexLock lock(&mutex_);
  const auto pushes = static_cast<double>(pushes_);
  return {{"pushes", pushes},
          {"duplicate_pushes", static_cast<double>(duplicates_)},
          {"mean_staleness",
           pushes_ == 0 ? 0 : static_cast<double>(staleness_sum_) / pushes},
          {"max_staleness", static_cast<double>(staleness_max_)},
          {"workers_lost",
           static_cast<double>(progress_.workers() - progress_.living())}};
}

}  // namespace tandem
