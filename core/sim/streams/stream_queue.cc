#include "core/sim/streams/stream_queue.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <utility>

namespace tandem {
namespace sim {
namespace {

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
  TORCH_CHECK(
      !is_captured,
      "an event that was recorded in a capture cannot be waited for: it "
      "never comes, but those of its replays do");
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
  TORCH_CHECK(!mark_->is_captured,
              "an event that was recorded in a capture cannot be asked for");
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
  changed_.notify_all();
  thread_.join();
}

void StreamQueue::Push(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    ++pushed_;
  }
  changed_.notify_all();
}

bool StreamQueue::IsIdle() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ == pushed_;
}

void StreamQueue::Drain() {
  std::exception_ptr failure;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this, last = pushed_] { return done_ >= last; });
    std::swap(failure, failure_);
  }
  if (failure) std::rethrow_exception(failure);
}

void StreamQueue::Delay() {
  if (most_delay_us_ == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(
      NextRandom(random_) % (static_cast<uint64_t>(most_delay_us_) + 1)));
}

void StreamQueue::Loop() {
  at::init_num_threads();  // oneDNN and MKL take OpenMP's number for the thread
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || ending_; });
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
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace sim
}  // namespace tandem
