#include "core/backend/breakable_works.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/torch_status.h"

namespace tandem {

// What the works share with the thread that looks after them: they may be
// waited for after it has gone.
class BreakableWorks::State {
 public:
  // For as long as a thread waits. `message` may be null.
  class Waiting {
   public:
    Waiting(State* state, c10d::Work* message)
        : state_(state), message_(message), since_(absl::Now()) {
      absl::MutexLock lock(&state_->mutex);
      state_->waits.insert(this);
    }
    ~Waiting() {
      absl::MutexLock lock(&state_->mutex);
      state_->waits.erase(this);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    c10d::Work* message() const { return message_; }
    // Is it time to look? Then the next time comes later.
    bool Due(absl::Time now) {
      if (now - since_ < next_) return false;
      next_ = std::max(next_, now - since_) * 1.5;
      return true;
    }

   private:
    State* const state_;
    c10d::Work* const message_;
    const absl::Time since_;
    absl::Duration next_ = absl::Seconds(1);
  };

  void Break(const std::string& reason) {
    absl::MutexLock lock(&mutex);
    if (!broken.empty()) return;
    broken = reason.empty() ? "the connection was given up" : reason;
    for (Waiting* const wait : waits) {
      if (wait->message() == nullptr) continue;  // sees it in `broken`
      CatchTorch([&] { wait->message()->abort(); }).IgnoreError();
    }
  }

  bool IsBroken() {
    absl::MutexLock lock(&mutex);
    return !broken.empty();
  }

  [[noreturn]] void ThrowBroken() {
    absl::MutexLock lock(&mutex);
    C10_THROW_ERROR(DistNetworkError, broken);
  }

  explicit State(std::function<void()> keep) : keep_backend(std::move(keep)) {}

  const std::function<void()> keep_backend;
  absl::Mutex mutex;
  std::set<Waiting*> waits ABSL_GUARDED_BY(mutex);
  std::string broken ABSL_GUARDED_BY(mutex);  // why; empty: it is not
  bool stopped ABSL_GUARDED_BY(mutex) = false;
};

namespace {

using std::chrono::milliseconds;
using State = BreakableWorks::State;
using WorkPtr = BreakableWorks::WorkPtr;

constexpr absl::Duration kInterval = absl::Milliseconds(500);
// What a collective needs that ends because of the same break.
constexpr absl::Duration kGrace = absl::Seconds(1);
// What a message needs that has come.
constexpr milliseconds kAtOnce(1);

class BreakableMessage : public c10d::Work {
 public:
  BreakableMessage(std::shared_ptr<State> state, WorkPtr message)
      : Work(-1, message->retrieveOpType()),
        state_(std::move(state)),
        message_(std::move(message)) {}

  bool wait(milliseconds timeout) override {
    std::exception_ptr failure;
    try {
      const State::Waiting waiting(state_.get(), message_.get());
      // Break aborts those that it finds waiting.
      const bool ended = message_->wait(state_->IsBroken() ? kAtOnce : timeout);
      if (!ended) state_->ThrowBroken();
    } catch (...) {
      failure = std::current_exception();
    }
    finishAndThrow(failure);
    return true;
  }

  int sourceRank() const override { return message_->sourceRank(); }
  void abort() override { message_->abort(); }

 private:
  const std::shared_ptr<State> state_;
  const WorkPtr message_;
};

class BreakableCollective : public c10d::Work {
 public:
  BreakableCollective(std::shared_ptr<State> state, WorkPtr collective)
      : Work(-1, collective->retrieveOpType()),
        state_(std::move(state)),
        collective_(std::move(collective)),
        ended_(std::make_shared<bool>(false)) {
    collective_->getFuture()->addCallback(
        [state = state_, ended = ended_](c10::ivalue::Future&) {
          absl::MutexLock lock(&state->mutex);
          *ended = true;
        },
        /*uses_future=*/false);
  }

  bool wait(milliseconds timeout) override {
    if (AwaitEnd(timeout)) return collective_->wait(timeout);
    if (!state_->IsBroken()) return collective_->wait(kAtOnce);  // throws
    state_->keep_backend();
    state_->ThrowBroken();
  }

  bool isCompleted() override { return collective_->isCompleted(); }
  bool isSuccess() const override { return collective_->isSuccess(); }
  std::exception_ptr exception() const override {
    return collective_->exception();
  }
  std::vector<at::Tensor> result() override { return collective_->result(); }
  void synchronize() override { collective_->synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return collective_->getFuture();
  }
  uint64_t getSequencenumber() const override {
    return collective_->getSequencenumber();
  }

 private:
  // Whether it has ended, in time and before a break.
  bool AwaitEnd(milliseconds timeout) {
    const State::Waiting waiting(state_.get(), nullptr);
    absl::MutexLock lock(&state_->mutex);
    const auto over = [this] {
      state_->mutex.AssertHeld();
      return *ended_ || !state_->broken.empty();
    };
    state_->mutex.AwaitWithTimeout(absl::Condition(&over),
                                   timeout == kNoTimeout
                                       ? absl::InfiniteDuration()
                                       : absl::FromChrono(timeout));
    if (!*ended_ && !state_->broken.empty()) {
      state_->mutex.AwaitWithTimeout(absl::Condition(ended_.get()), kGrace);
    }
    return *ended_;
  }

  const std::shared_ptr<State> state_;
  const WorkPtr collective_;
  const std::shared_ptr<bool> ended_;  // the state's mutex guards it
};

}  // namespace

BreakableWorks::BreakableWorks(std::function<void()> probe,
                               std::function<void()> keep_backend)
    : probe_(std::move(probe)),
      state_(std::make_shared<State>(std::move(keep_backend))),
      thread_([this] { Run(); }) {}

BreakableWorks::~BreakableWorks() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopped = true;
  }
  thread_.join();
}

WorkPtr BreakableWorks::OfMessage(WorkPtr message) {
  return c10::make_intrusive<BreakableMessage>(state_, std::move(message));
}

WorkPtr BreakableWorks::OfCollective(WorkPtr collective) {
  return c10::make_intrusive<BreakableCollective>(state_,
                                                  std::move(collective));
}

void BreakableWorks::Break(const std::string& reason) { state_->Break(reason); }

void BreakableWorks::Run() {
  const auto over = [this] {
    state_->mutex.AssertHeld();
    return state_->stopped || !state_->broken.empty();
  };
  const auto wait = [&] {
    return state_->mutex.AwaitWithTimeout(absl::Condition(&over), kInterval);
  };
  absl::MutexLock lock(&state_->mutex);
  while (!wait()) {
    bool due = false;
    for (State::Waiting* const one : state_->waits) {
      due |= one->Due(absl::Now());
    }
    if (!due) continue;
    state_->mutex.Unlock();
    const absl::Status probed = CatchTorch(probe_);
    if (!probed.ok()) state_->Break(std::string(probed.message()));
    state_->mutex.Lock();
  }
}

}  // namespace tandem
