#include "core/sim/streams/streams.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tandem {

namespace sim {
namespace {

// Streams of a device: the default one, a pool, and one of high priority, which
// shares none with it, as on CUDA.
constexpr int kPooled = 7;
constexpr int kPrioritised = 4;
constexpr int kStreams = 1 + kPooled + kPrioritised;

// Shared: who waits for a stream keeps it until then.
using QueuePtr = std::shared_ptr<StreamQueue>;

struct QueueSettings {
  bool asynchronous = false;
  int most_delay_us = 0;
  uint64_t seed = 0;
};

// Written once, before any work.
QueueSettings settings;

// Queues of the device, by a stream's id: those of the pool, started at first
// use, run until the process ends; behind them those that are somebody's own.
struct Queues {
  std::mutex mutex;
  std::array<std::vector<QueuePtr>, kMostDevices> of;
};

Queues& AllQueues() {
  static auto* queues = [] {
    auto* made = new Queues;
    for (auto& device : made->of) device.resize(kStreams);
    return made;
  }();
  return *queues;
}

thread_local std::array<int64_t, kMostDevices> current_stream = {};

c10::Stream MakeStream(int8_t device, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(c10::DeviceType::PrivateUse1, device), id);
}

QueuePtr NewQueue(int device, int64_t id) {
  return std::make_shared<StreamQueue>(
      settings.most_delay_us,
      settings.seed + static_cast<uint64_t>(id * kMostDevices + device));
}

QueuePtr FindQueue(c10::Stream stream) {
  const int device = stream.device_index();
  const int64_t id = stream.id();
  std::lock_guard<std::mutex> lock(AllQueues().mutex);
  QueuePtr& queue = AllQueues().of[device][id];
  if (queue == nullptr) queue = NewQueue(device, id);
  return queue;
}

// The queues that have been used, of the device's first ones.
std::vector<QueuePtr> UsedQueues(int8_t device, size_t first = SIZE_MAX) {
  std::vector<QueuePtr> queues;
  std::lock_guard<std::mutex> lock(AllQueues().mutex);
  const auto& all = AllQueues().of[device];
  for (size_t i = 0; i < std::min(first, all.size()); ++i) {
    if (all[i] != nullptr) queues.push_back(all[i]);
  }
  return queues;
}

std::atomic<bool> process_ends{false};

std::array<std::atomic<int>, kMostDevices> waiting_threads = {};

void Drain(StreamQueue& queue, int8_t device) {
  struct Waiting {
    std::atomic<int>& threads;
    explicit Waiting(std::atomic<int>& of_device) : threads(of_device) {
      ++threads;
    }
    ~Waiting() { --threads; }
  };
  const Waiting waiting(waiting_threads[device]);
  queue.Drain();
}

// Runs what is queued, and ends the threads.
void EndQueues() {
  process_ends = true;
  std::vector<QueuePtr> ending;
  {
    std::lock_guard<std::mutex> lock(AllQueues().mutex);
    for (auto& device : AllQueues().of) {
      for (auto& queue : device) ending.push_back(std::move(queue));
    }
  }
  ending.clear();
}

}  // namespace

// The last one registered is the first to run.
void EndQueuesBeforeStaticObjects() { std::atexit(&EndQueues); }

bool ProcessEnds() { return process_ends; }

void UseQueues(int most_delay_us, uint64_t seed) {
  settings = {true, most_delay_us, seed};
  EndQueuesBeforeStaticObjects();
}

bool IsAsynchronous() { return settings.asynchronous; }

c10::Stream DefaultStream(int8_t device) { return MakeStream(device, 0); }

c10::Stream PooledStream(int8_t device, bool high_priority) {
  static std::atomic<uint32_t> next{0};
  const uint32_t turn = next.fetch_add(1);
  return MakeStream(device, high_priority ? 1 + kPooled + turn % kPrioritised
                                          : 1 + turn % kPooled);
}

c10::Stream NewStream(int8_t device) {
  std::lock_guard<std::mutex> lock(AllQueues().mutex);
  auto& queues = AllQueues().of[device];
  const auto id = static_cast<int64_t>(queues.size());
  queues.push_back(NewQueue(device, id));
  return MakeStream(device, id);
}

void ReleaseStream(c10::Stream stream) {
  QueuePtr ending;  // ends behind the lock
  std::lock_guard<std::mutex> lock(AllQueues().mutex);
  std::swap(ending, AllQueues().of[stream.device_index()][stream.id()]);
}

c10::Stream CurrentStream(int8_t device) {
  return MakeStream(device, current_stream[device]);
}

c10::Stream ExchangeStream(c10::Stream stream) {
  const c10::Stream before = CurrentStream(stream.device_index());
  current_stream[stream.device_index()] = stream.id();
  return before;
}

void Push(c10::Stream stream, std::function<void()> work) {
  FindQueue(stream)->Push(std::move(work));
}

void RecordEvent(Event& event, c10::Stream stream) {
  const std::shared_ptr<Event::Mark> mark = event.Record();
  if (!IsAsynchronous()) return mark->Pass();
  Push(stream, [mark] { mark->Pass(); });
}

void HoldStream(const Event& event, c10::Stream stream) {
  if (event.Passed()) return;
  Push(stream, [mark = event.mark()] { mark->Wait(); });
}

bool IsIdle(c10::Stream stream) {
  return !IsAsynchronous() || FindQueue(stream)->IsIdle();
}

void Synchronise(c10::Stream stream) {
  if (IsAsynchronous()) Drain(*FindQueue(stream), stream.device_index());
}

void SynchroniseDevice(int8_t device) {
  for (const QueuePtr& queue : UsedQueues(device)) {
    Drain(*queue, device);
  }
}

void SynchroniseComputing(int8_t device) {
  for (const QueuePtr& queue : UsedQueues(device, kStreams)) {
    Drain(*queue, device);
  }
}

int HostThreadsWaiting(int8_t device) { return waiting_threads[device]; }

void SynchroniseAll() {
  for (int device = 0; device < kMostDevices; ++device) {
    SynchroniseComputing(static_cast<int8_t>(device));
  }
}

namespace {

struct Counts {
  std::mutex mutex;
  HostWaits waits;
};

Counts& AllCounts() {
  static auto* counts = new Counts;
  return *counts;
}

}  // namespace

void CountHostWait(const std::string& what) {
  if (!IsAsynchronous()) return;
  const std::lock_guard<std::mutex> lock(AllCounts().mutex);
  ++AllCounts().waits[what];
}

bool CountsHostWaits() { return IsAsynchronous(); }

HostWaits CountedHostWaits() {
  const std::lock_guard<std::mutex> lock(AllCounts().mutex);
  return AllCounts().waits;
}

HostWaits HostWaitsSince(const HostWaits& before) {
  HostWaits since;
  for (const auto& [what, count] : CountedHostWaits()) {
    const auto found = before.find(what);
    const int64_t earlier = found == before.end() ? 0 : found->second;
    if (count > earlier) since[what] = count - earlier;
  }
  return since;
}

}  // namespace sim
}  // namespace tandem
