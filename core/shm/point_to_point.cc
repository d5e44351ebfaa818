#include "core/shm/point_to_point.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/shm/memory/segment.h"

namespace tandem {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestSleep(1);

}  // namespace

ShmPointToPoint::ShmPointToPoint(ShmSegment* segment, int rank,
                                 const ShmConnections* connections)
    : segment_(segment),
      rank_(rank),
      connections_(connections),
      outboxes_(segment->size()),
      has_ring_(segment->size(), false),
      inboxes_(segment->size()) {}

ShmPointToPoint::~ShmPointToPoint() { Close(); }

void ShmPointToPoint::Close() {
  Fail(absl::UnavailableError("this rank left"));
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    thread = std::move(thread_);
  }
  segment_->page(rank_).idle_mail.Add(1);
  if (thread.joinable()) thread.join();
}

std::shared_ptr<ShmMessage> ShmPointToPoint::Send(ConstBytes data, int to,
                                                  int64_t tag,
                                                  std::shared_ptr<void> keep) {
  auto message = std::make_shared<ShmMessage>();
  message->data = const_cast<std::byte*>(data.data);  // is only read
  message->bytes = data.size;
  message->peer = to;
  message->tag = tag;
  message->keep = std::move(keep);
  Post(message, /*send=*/true);
  return message;
}

std::shared_ptr<ShmMessage> ShmPointToPoint::Receive(
    MutableBytes data, int from, int64_t tag, std::shared_ptr<void> keep) {
  auto message = std::make_shared<ShmMessage>();
  message->data = data.data;
  message->bytes = data.size;
  message->peer = from;
  message->tag = tag;
  message->keep = std::move(keep);
  Post(message, /*send=*/false);
  return message;
}

void ShmPointToPoint::Post(const std::shared_ptr<ShmMessage>& message,
                           bool send) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = failure_;
  if (status.ok() && send) status = ReserveRing(message->peer);
  if (!status.ok()) {
    message->Finish(status);
    return;
  }
  if (send) {
    outboxes_[message->peer].Post(message);
  } else {
    inboxes_[message->peer].Post(message);
  }
  while (Progress()) {
  }
  if (!message->done()) StartThread();
}

absl::Status ShmPointToPoint::ReserveRing(int peer) {
  if (has_ring_[peer]) return absl::OkStatus();
  absl::Status status = segment_->ReserveMail(rank_, peer);
  has_ring_[peer] = status.ok();
  return status;
}

bool ShmPointToPoint::Progress() {
  bool any = false;
  for (int peer = 0; peer < segment_->size(); ++peer) {
    bool moved = false;
    if (!outboxes_[peer].idle()) {
      moved |= outboxes_[peer].Push(segment_->mail(rank_, peer));
    }
    if (!inboxes_[peer].idle()) {
      moved |= inboxes_[peer].Pull(segment_->mail(peer, rank_));
    }
    if (moved) Tell(peer);
    any |= moved;
  }
  // Another thread may sleep until what was finished here is.
  if (any) segment_->page(rank_).mail.Add(1);
  return any;
}

// The order matters: who begins to wait counts itself first and looks at the
// ring then, who writes to the ring looks for waiters then.
void ShmPointToPoint::Tell(int peer) {
  ShmRankPage& peer_page = segment_->page(peer);
  (peer_page.mail_waiters.load() != 0 ? peer_page.mail : peer_page.idle_mail)
      .Add(1);
}

bool ShmPointToPoint::TryFinish(ShmMessage& message) {
  if (message.done()) return true;
  absl::MutexLock lock(&mutex_);
  while (Progress()) {
  }
  return message.done();
}

absl::Status ShmPointToPoint::Check(const ShmMessage& message) const {
  return CheckPresence(*segment_, rank_,
                       [&](int rank) { return rank == message.peer; });
}

void ShmPointToPoint::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = status;
  for (ShmOutbox& box : outboxes_) box.FailAll(failure_);
  for (ShmInbox& box : inboxes_) box.FailAll(failure_);
}

bool ShmPointToPoint::Test(ShmMessage& message) {
  if (TryFinish(message)) return true;
  const absl::Status status = Check(message);
  if (!status.ok() && !TryFinish(message)) Fail(status);
  return message.done();
}

bool ShmPointToPoint::Await(ShmMessage& message, Deadline until) {
  SharedSignal& mail = segment_->page(rank_).mail;
  const auto done = [&] { return TryFinish(message); };
  while (!SpinUntil(connections_->core_for_each, done)) {
    const uint32_t seen = mail.value();
    if (Test(message)) return true;
    const auto left = until - steady_clock::now();
    if (left.count() <= 0 || message.cancelled) return false;
    mail.Sleep(seen, std::min<std::chrono::nanoseconds>(left, kLongestSleep));
  }
  return true;
}

void ShmPointToPoint::CancelWait(ShmMessage& message) {
  message.cancelled = true;
  segment_->page(rank_).mail.Add(1);
}

void ShmPointToPoint::GiveUp(const ShmMessage& message) {
  const absl::Status late = absl::DeadlineExceededError(absl::StrCat(
      "timed out waiting for ", NamesOfRanks(*segment_, {message.peer})));
  segment_->SetState(rank_, ShmRankState::kGaveUp, late.message());
  Fail(late);
}

absl::Status ShmPointToPoint::Wait(ShmMessage& message, Deadline deadline,
                                   Deadline patience) {
  ShmRankPage& mine = segment_->page(rank_);
  mine.mail_waiters.fetch_add(1);
  const bool done = Await(message, std::min(deadline, patience));
  const bool cancelled = message.cancelled.exchange(false);
  if (!done && !cancelled && deadline <= patience) GiveUp(message);
  mine.mail_waiters.fetch_sub(1);
  // What came for others meanwhile was told to this thread alone.
  TryFinish(message);
  {
    absl::MutexLock lock(&mutex_);
    while (Progress()) {
    }
  }
  if (cancelled) return absl::CancelledError("the wait was cancelled");
  if (message.done()) return message.status;
  return absl::DeadlineExceededError(absl::StrCat(
      "timed out waiting for ", NamesOfRanks(*segment_, {message.peer}),
      ", which may still come"));
}

void ShmPointToPoint::StartThread() {
  if (thread_.joinable() || stop_) return;
  thread_ = std::thread([this] { Run(); });
}

void ShmPointToPoint::Run() {
  SharedSignal& signal = segment_->page(rank_).idle_mail;
  for (;;) {
    const uint32_t seen = signal.value();
    {
      absl::MutexLock lock(&mutex_);
      while (Progress()) {
      }
      if (stop_) return;
    }
    signal.Sleep(seen, std::chrono::hours(1));
  }
}

}  // namespace tandem
