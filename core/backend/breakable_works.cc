#include "core/backend/breakable_works.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/steady_await.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

// What a message needs to end whose peer has sent, or taken, all and gone.
constexpr std::chrono::milliseconds kLastBytes(500);
// What the others need for theirs of a collective when one has done its part,
// after the last bytes that they sent each other.
constexpr std::chrono::milliseconds kOthersPart(4000);
// What a collective needs that ends because of the same break.
constexpr absl::Duration kGrace = absl::Seconds(1);

}  // namespace

BreakableWaits::Waiting::Waiting(BreakableWaits* waits, c10d::Work* message,
                                 int peer)
    : waits_(waits), message_(message), peer_(peer), since_(Clock::now()) {
  absl::MutexLock lock(&waits_->mutex_);
  waits_->waits_.insert(this);
}

BreakableWaits::Waiting::~Waiting() {
  absl::MutexLock lock(&waits_->mutex_);
  waits_->waits_.erase(this);
}

bool BreakableWaits::Waiting::Due(Time now) {
  if (now - since_ < next_) return false;
  next_ = std::max(next_, now - since_) * 3 / 2;
  return true;
}

bool BreakableWaits::Waiting::IsBroken(Time now) const {
  return doubted_ != Time::max() &&
         now - doubted_ >= (message_ != nullptr ? kLastBytes : kOthersPart);
}

void BreakableWaits::Break(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  if (!broken_.empty()) return;
  broken_ = reason.empty() ? "the connection was given up" : reason;
  for (Waiting* const wait : waits_) {
    if (wait->message_ == nullptr) continue;
    CatchTorch([&] { wait->message_->abort(); }).IgnoreError();
  }
}

bool BreakableWaits::IsBroken() {
  absl::MutexLock lock(&mutex_);
  return !broken_.empty();
}

void BreakableWaits::ThrowBroken() {
  absl::MutexLock lock(&mutex_);
  C10_THROW_ERROR(DistNetworkError, broken_);
}

std::set<int> BreakableWaits::PeersDue(Time now) {
  absl::MutexLock lock(&mutex_);
  std::set<int> peers;
  for (Waiting* const wait : waits_) {
    if (wait->Due(now)) peers.insert(wait->peer_);
  }
  return peers;
}

void BreakableWaits::Doubt(int peer, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  doubt_ = reason;
  const Time now = Clock::now();
  for (Waiting* const wait : waits_) {
    if (wait->peer_ == peer) wait->doubted_ = std::min(wait->doubted_, now);
  }
}

bool BreakableWaits::HasDoubtedCollective() {
  absl::MutexLock lock(&mutex_);
  return absl::c_any_of(waits_, [](const Waiting* wait) {
    return wait->message_ == nullptr && wait->doubted_ != Time::max();
  });
}

void BreakableWaits::RenewDoubts(Time now) {
  absl::MutexLock lock(&mutex_);
  for (Waiting* const wait : waits_) {
    if (wait->message_ == nullptr && wait->doubted_ != Time::max()) {
      wait->doubted_ = now;
    }
  }
}

std::string BreakableWaits::Confirmed(Time now) {
  absl::MutexLock lock(&mutex_);
  const bool confirmed = absl::c_any_of(
      waits_, [now](const Waiting* wait) { return wait->IsBroken(now); });
  return confirmed ? doubt_ : "";
}

void BreakableWaits::MarkEnded(bool* ended) {
  absl::MutexLock lock(&mutex_);
  *ended = true;
}

bool BreakableWaits::AwaitEnd(const bool* ended, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this, ended] {
    mutex_.AssertHeld();
    return *ended || !broken_.empty();
  };
  AwaitSteadily(mutex_, absl::Condition(&over), timeout);
  if (!*ended && !broken_.empty()) {
    const auto ends = [ended] { return *ended; };
    AwaitSteadily(mutex_, absl::Condition(&ends), kGrace);
  }
  return *ended;
}

bool BreakableWaits::Pause(absl::Duration interval) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this] {
    mutex_.AssertHeld();
    return stopped_ || !broken_.empty();
  };
  return !mutex_.AwaitWithTimeout(absl::Condition(&over), interval);
}

void BreakableWaits::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

namespace {

using std::chrono::milliseconds;
using WaitsPtr = std::shared_ptr<BreakableWaits>;
using WorkPtr = BreakableWorks::WorkPtr;

constexpr absl::Duration kInterval = absl::Milliseconds(500);
// What a message needs that has come.
constexpr milliseconds kAtOnce(1);

class BreakableMessage : public c10d::Work {
 public:
  BreakableMessage(WaitsPtr waits, WorkPtr message, int peer)
      : Work(-1, message->retrieveOpType()),
        waits_(std::move(waits)),
        message_(std::move(message)),
        peer_(peer) {}

  bool wait(milliseconds timeout) override {
    std::exception_ptr failure;
    try {
      const BreakableWaits::Waiting waiting(waits_.get(), message_.get(),
                                            peer_);
      // Break aborts those that it finds waiting.
      const bool ended = message_->wait(waits_->IsBroken() ? kAtOnce : timeout);
      if (!ended) waits_->ThrowBroken();
    } catch (...) {
      failure = std::current_exception();
    }
    finishAndThrow(failure);
    return true;
  }

  int sourceRank() const override { return message_->sourceRank(); }
  milliseconds getTimeout() const override { return message_->getTimeout(); }
  void abort() override { message_->abort(); }

 private:
  const WaitsPtr waits_;
  const WorkPtr message_;
  const int peer_;
};

class BreakableCollective : public c10d::Work {
 public:
  BreakableCollective(WaitsPtr waits, std::function<void()> keep_backend,
                      WorkPtr collective)
      : Work(-1, collective->retrieveOpType()),
        waits_(std::move(waits)),
        keep_backend_(std::move(keep_backend)),
        collective_(std::move(collective)),
        ended_(std::make_shared<bool>(false)) {
    collective_->getFuture()->addCallback(
        [waits = waits_, ended = ended_](c10::ivalue::Future&) {
          waits->MarkEnded(ended.get());
        },
        /*uses_future=*/false);
  }

  bool wait(milliseconds timeout) override {
    if (AwaitEnd(timeout)) return collective_->wait(timeout);
    if (!waits_->IsBroken()) return collective_->wait(kAtOnce);  // throws
    keep_backend_();
    waits_->ThrowBroken();
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
  milliseconds getTimeout() const override { return collective_->getTimeout(); }

 private:
  bool AwaitEnd(milliseconds timeout) {
    const BreakableWaits::Waiting waiting(waits_.get(), nullptr,
                                          BreakableWaits::kAll);
    return waits_->AwaitEnd(ended_.get(), timeout == kNoTimeout
                                              ? absl::InfiniteDuration()
                                              : absl::FromChrono(timeout));
  }

  const WaitsPtr waits_;
  const std::function<void()> keep_backend_;
  const WorkPtr collective_;
  const std::shared_ptr<bool> ended_;
};

}  // namespace

BreakableWorks::BreakableWorks(std::function<void(int)> probe,
                               std::function<bool()> have_moved,
                               std::function<void()> keep_backend)
    : probe_(std::move(probe)),
      have_moved_(std::move(have_moved)),
      keep_backend_(std::move(keep_backend)),
      waits_(std::make_shared<BreakableWaits>()),
      thread_([this] { Run(); }) {}

BreakableWorks::~BreakableWorks() {
  waits_->Stop();
  thread_.join();
}

WorkPtr BreakableWorks::OfMessage(WorkPtr message, int peer) {
  return c10::make_intrusive<BreakableMessage>(waits_, std::move(message),
                                               peer);
}

WorkPtr BreakableWorks::OfCollective(WorkPtr collective) {
  return c10::make_intrusive<BreakableCollective>(waits_, keep_backend_,
                                                  std::move(collective));
}

void BreakableWorks::Break(const std::string& reason) { waits_->Break(reason); }

void BreakableWorks::Run() {
  while (waits_->Pause(kInterval)) {
    if (waits_->HasDoubtedCollective() && have_moved_()) {
      waits_->RenewDoubts(BreakableWaits::Clock::now());
    }
    const std::string reason = waits_->Confirmed(BreakableWaits::Clock::now());
    if (!reason.empty()) return Break(reason);
    for (const int peer : waits_->PeersDue(BreakableWaits::Clock::now())) {
      const absl::Status probed = CatchTorch([&] { probe_(peer); });
      if (!probed.ok()) waits_->Doubt(peer, std::string(probed.message()));
    }
  }
}

}  // namespace tandem
