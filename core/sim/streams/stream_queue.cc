#include "core/sim/streams/stream_queue.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem {
namespace sim {
namespace {

// Less is saved up: a sleep takes some 50 us longer than it is meant to.
constexpr uint64_t kShortestSleepUs = 100;

// A step of SplitMix64: a sequence of its own for each stream.
uint64_t NextRandom(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void Event::Mark::Pass() {
  std::lock_guard<std::mutex> lock(mutex);
  passed = true;
  at = std::chrono::steady_clock::now();
  changed.notify_all();
}

void Event::Mark::Wait() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return passed; });
}

std::chrono::steady_clock::time_point Event::Mark::PassedAt() {
  Wait();
  std::lock_guard<std::mutex> lock(mutex);
  return at;
}

std::shared_ptr<Event::Mark> Event::Record() {
  mark_ = std::make_shared<Mark>();
  return mark_;
}

bool Event::Passed() const {
  if (mark_ == nullptr) return true;
  std::lock_guard<std::mutex> lock(mark_->mutex);
  return mark_->passed;
}

void Event::Wait() const {
  if (mark_ != nullptr) mark_->Wait();
}

StreamQueue::StreamQueue(int most_delay_us, uint64_t seed)
    : most_delay_us_(most_delay_us),
      random_(seed),
      thread_([this] { Loop(); }) {}

StreamQueue::~StreamQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  queued_.notify_one();
  thread_.join();
}

void StreamQueue::Push(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    ++pushed_;
  }
  queued_.notify_one();
}

bool StreamQueue::IsIdle() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ == pushed_;
}

void StreamQueue::Drain() {
  std::exception_ptr failure;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t last = pushed_;
    while (done_ < last) {
      awaited_ = std::min(awaited_, last);
      ran_.wait(lock);
    }
    std::swap(failure, failure_);
  }
  if (failure) std::rethrow_exception(failure);
}

void StreamQueue::Delay() {
  if (most_delay_us_ == 0) return;
  owed_us_ += NextRandom(random_) % (static_cast<uint64_t>(most_delay_us_) + 1);
  if (owed_us_ < kShortestSleepUs) return;
  std::this_thread::sleep_for(std::chrono::microseconds(owed_us_));
  owed_us_ = 0;
}

void StreamQueue::Loop() {
  at::init_num_threads();  // oneDNN and MKL take OpenMP's number for the thread
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    queued_.wait(lock, [this] { return !queue_.empty() || ending_; });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Delay();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;  // what it holds goes before anyone is told that it ran
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    if (++done_ < awaited_) continue;
    awaited_ = kNothing;
    ran_.notify_all();
  }
}

}  // namespace sim
}  // namespace tandem
