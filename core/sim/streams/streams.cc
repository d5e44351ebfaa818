#include "core/sim/streams/streams.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/sim/streams/limits.h"

namespace tandem {
namespace sim {
namespace {

constexpr int kStreams = 8;  // of a device: the default one, and a pool

struct QueueSettings {
  bool asynchronous = false;
  int most_delay_us = 0;
  uint64_t seed = 0;
};

// Written once, before any work.
QueueSettings settings;

// Started at first use; run until the process ends.
struct Queues {
  std::mutex mutex;
  std::array<std::array<std::unique_ptr<StreamQueue>, kStreams>, kMostDevices>
      of;
};

Queues& AllQueues() {
  static auto* queues = new Queues;
  return *queues;
}

thread_local std::array<int8_t, kMostDevices> current_stream = {};

c10::Stream MakeStream(int8_t device, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(c10::DeviceType::PrivateUse1, device), id);
}

StreamQueue& QueueOf(c10::Stream stream) {
  const int device = stream.device_index();
  const int64_t id = stream.id();
  std::lock_guard<std::mutex> lock(AllQueues().mutex);
  auto& queue = AllQueues().of[device][id];
  if (queue == nullptr) {
    queue = std::make_unique<StreamQueue>(
        settings.most_delay_us,
        settings.seed + static_cast<uint64_t>(device * kStreams + id));
  }
  return *queue;
}

// Those of the device that have been used.
std::vector<StreamQueue*> QueuesOf(int8_t device) {
  std::vector<StreamQueue*> queues;
  std::lock_guard<std::mutex> lock(AllQueues().mutex);
  for (const auto& queue : AllQueues().of[device]) {
    if (queue != nullptr) queues.push_back(queue.get());
  }
  return queues;
}

// Runs what is queued, and ends the threads.
void EndQueues() {
  std::vector<std::unique_ptr<StreamQueue>> ending;
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

void UseQueues(int most_delay_us, uint64_t seed) {
  settings = {true, most_delay_us, seed};
  EndQueuesBeforeStaticObjects();
}

bool IsAsynchronous() { return settings.asynchronous; }

c10::Stream DefaultStream(int8_t device) { return MakeStream(device, 0); }

c10::Stream PooledStream(int8_t device) {
  static std::atomic<uint32_t> next{0};
  return MakeStream(device, 1 + next.fetch_add(1) % (kStreams - 1));
}

c10::Stream CurrentStream(int8_t device) {
  return MakeStream(device, current_stream[device]);
}

c10::Stream ExchangeStream(c10::Stream stream) {
  const c10::Stream before = CurrentStream(stream.device_index());
  current_stream[stream.device_index()] = static_cast<int8_t>(stream.id());
  return before;
}

void Push(c10::Stream stream, std::function<void()> work) {
  QueueOf(stream).Push(std::move(work));
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
  return !IsAsynchronous() || QueueOf(stream).IsIdle();
}

void Synchronise(c10::Stream stream) {
  if (IsAsynchronous()) QueueOf(stream).Drain();
}

void SynchroniseDevice(int8_t device) {
  for (StreamQueue* queue : QueuesOf(device)) queue->Drain();
}

void SynchroniseAll() {
  for (int device = 0; device < kMostDevices; ++device) {
    SynchroniseDevice(static_cast<int8_t>(device));
  }
}

}  // namespace sim
}  // namespace tandem
