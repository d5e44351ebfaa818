#include "datasets/prefetcher.h"

#include <glog/logging.h>

#include <utility>

#include "core/base/steady_await.h"

namespace tandem {

Prefetcher::Prefetcher(int64_t threads, int64_t ahead) : ahead_(ahead) {
  CHECK_GE(threads, 1);
  CHECK_GE(ahead, 1);
  for (int64_t i = 0; i < threads; ++i)
    threads_.emplace_back([this] { Work(); });
}

Prefetcher::~Prefetcher() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::Start(Read read, int64_t count) {
  absl::MutexLock lock(&mutex_);
  ++round_;
  read_ = std::move(read);
  count_ = count;
  next_to_read_ = 0;
  next_to_take_ = 0;
  ready_.clear();
}

std::optional<absl::StatusOr<Batch>> Prefetcher::Take(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  CHECK_LT(next_to_take_, count_);
  const absl::Condition is_ready(this, &Prefetcher::IsNextReady);
  if (!AwaitSteadily(mutex_, is_ready, timeout)) return std::nullopt;
  auto taken = ready_.extract(ready_.begin());
  ++next_to_take_;
  return std::move(taken.mapped());
}

void Prefetcher::Work() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(this, &Prefetcher::HasWork));
    if (stopping_) return;
    const int64_t round = round_;
    const int64_t number = next_to_read_++;
    const Read read = read_;
    mutex_.Unlock();
    absl::StatusOr<Batch> batch = read(number);
    mutex_.Lock();
    // A round that began meanwhile has no use for it.
    if (round == round_) ready_.emplace(number, std::move(batch));
  }
}

bool Prefetcher::HasWork() const {
  return stopping_ ||
         (next_to_read_ < count_ && next_to_read_ < next_to_take_ + ahead_);
}

bool Prefetcher::IsNextReady() const { return ready_.count(next_to_take_) > 0; }

}  // namespace tandem
