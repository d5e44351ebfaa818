// Stream queue: what a stream of a simulated device is made of, with a thread
// that works it off in order.

#ifndef TANDEM_CORE_SIM_STREAMS_STREAM_QUEUE_H_
#define TANDEM_CORE_SIM_STREAMS_STREAM_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

namespace tandem {
namespace sim {

// A mark in a queue: passed when what was queued before it has run. Before it
// is recorded it counts as passed. Copies of a recording are one mark, and a
// new recording leaves those who wait for the old one alone.
// Thread-safe but for Record beside the others.
class Event {
 public:
  struct Mark {
    std::mutex mutex;
    std::condition_variable changed;
    bool passed = false;
    std::chrono::steady_clock::time_point at;  // when it was passed

    void Pass();
    void Wait();
    // After it.
    std::chrono::steady_clock::time_point PassedAt();
  };

  // A new mark for this event.
  std::shared_ptr<Mark> Record();
  std::shared_ptr<Mark> mark() const { return mark_; }

  bool Passed() const;
  void Wait() const;

 private:
  std::shared_ptr<Mark> mark_;
};

// Thread-safe. Destruction runs what is queued.
class StreamQueue {
 public:
  // Each piece of work is worth a random delay, 0 to `most_delay_us`, from
  // `seed`: the thread sleeps before it, once it has 0.1 ms to sleep.
  StreamQueue(int most_delay_us, uint64_t seed);
  ~StreamQueue();
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  void Push(std::function<void()> work);
  bool IsIdle() const;

  // Waits until all that was queued before has run, and throws the first
  // exception of it; once thrown it is forgotten. What follows a failure runs
  // nevertheless, as a GPU's other kernels do.
  void Drain();

 private:
  static constexpr uint64_t kNothing = std::numeric_limits<uint64_t>::max();

  void Loop();
  void Delay();

  const int most_delay_us_;
  uint64_t random_;
  uint64_t owed_us_ = 0;  // of the thread alone
  mutable std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable ran_;  // what Drain() awaits
  std::deque<std::function<void()>> queue_;
  uint64_t pushed_ = 0;
  uint64_t done_ = 0;
  uint64_t awaited_ = kNothing;  // the first number of done_ to be awaited
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_STREAMS_STREAM_QUEUE_H_
