#include "core/flight/recorder.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem {
namespace {

thread_local FlightPurpose current;

}  // namespace

FlightPurposeScope::FlightPurposeScope(const FlightPurpose& purpose)
    : before_(current) {
  current = purpose;
}

FlightPurposeScope::~FlightPurposeScope() { current = before_; }

const FlightPurpose& FlightPurposeScope::Current() { return current; }

namespace {

// Tags that a group's messages are counted by; further ones have no number.
constexpr size_t kMostTags = 1 << 16;

bool LockWithin(absl::Mutex& mutex, absl::Duration patience)
    ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mutex) {
  const auto begin = std::chrono::steady_clock::now();
  while (!mutex.TryLock()) {
    if (absl::FromChrono(std::chrono::steady_clock::now() - begin) > patience) {
      return false;
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace

FlightGroup::FlightGroup(std::string name, std::string id,
                         std::vector<int> ranks) {
  facts_.name = std::move(name);
  facts_.id = std::move(id);
  facts_.ranks = std::move(ranks);
}

FlightRecorder& FlightRecorder::OfProcess() {
  // Never destroyed: threads may note things at the end of the process.
  static FlightRecorder* const recorder = new FlightRecorder();
  return *recorder;
}

FlightRecorder::FlightRecorder(size_t capacity)
    : notes_(capacity > 0), ring_(capacity) {}

void FlightRecorder::SetCapacity(size_t capacity) {
  std::vector<Slot> ring(capacity);
  absl::MutexLock lock(&mutex_);
  if (ring_.size() == capacity) return;
  ring_.swap(ring);
  notes_.store(capacity > 0, std::memory_order_relaxed);
}

void FlightRecorder::SetSizes(absl::Span<const int64_t> sizes, Slot* slot) {
  slot->dimensions = std::min(sizes.size(), kMostSizes);
  std::copy_n(sizes.begin(), slot->dimensions, slot->sizes);
  for (size_t i = kMostSizes; i < sizes.size(); ++i) {
    slot->sizes[kMostSizes - 1] *= sizes[i];
  }
}

int64_t FlightRecorder::Count(FlightGroup& group,
                              const FlightOperation& operation,
                              int64_t sequence) {
  if (operation.kind == FlightKind::kCollective) {
    return group.facts_.scheduled = sequence;
  }
  const uint64_t sends = operation.kind == FlightKind::kSend ? 1 : 0;
  const uint64_t key = (static_cast<uint64_t>(operation.peer) << 33) |
                       (sends << 32) | static_cast<uint32_t>(operation.tag);
  const auto found = group.messages_.find(key);
  if (found != group.messages_.end()) return ++found->second;
  if (group.messages_.size() >= kMostTags) return 0;
  return group.messages_[key] = 1;
}

FlightRecorder::Id FlightRecorder::Schedule(
    const std::shared_ptr<FlightGroup>& group, const FlightOperation& operation,
    int64_t sequence) {
  if (!notes_.load(std::memory_order_relaxed)) return -1;
  const int64_t now = absl::GetCurrentTimeNanos();
  absl::MutexLock lock(&mutex_);
  if (ring_.empty()) return -1;
  const Id id = next_++;
  Slot& slot = ring_[static_cast<size_t>(id) % ring_.size()];
  slot.id = id;
  slot.group = group;
  slot.kind = operation.kind;
  slot.state = FlightState::kScheduled;
  slot.name = operation.name;
  slot.dtype = operation.dtype;
  slot.purpose = FlightPurposeScope::Current();
  slot.peer = operation.peer;
  slot.tag = operation.tag;
  slot.sequence = group == nullptr ? 0 : Count(*group, operation, sequence);
  slot.step = step_;
  SetSizes(operation.sizes, &slot);
  slot.scheduled_ns = now;
  slot.started_ns = slot.awaited_ns = slot.completed_ns = 0;
  return id;
}

FlightRecorder::Slot* FlightRecorder::Find(Id id) {
  if (id < 0 || ring_.empty()) return nullptr;
  Slot& slot = ring_[static_cast<size_t>(id) % ring_.size()];
  return slot.id == id ? &slot : nullptr;
}

void FlightRecorder::Start(Id id) {
  if (id < 0) return;
  const int64_t now = absl::GetCurrentTimeNanos();
  absl::MutexLock lock(&mutex_);
  Slot* const slot = Find(id);
  if (slot == nullptr || slot->state != FlightState::kScheduled) return;
  slot->state = FlightState::kStarted;
  slot->started_ns = now;
}

void FlightRecorder::Await(Id id) {
  if (id < 0) return;
  const int64_t now = absl::GetCurrentTimeNanos();
  absl::MutexLock lock(&mutex_);
  Slot* const slot = Find(id);
  if (slot != nullptr && slot->awaited_ns == 0) slot->awaited_ns = now;
}

void FlightRecorder::Complete(Id id) {
  if (id < 0) return;
  const int64_t now = absl::GetCurrentTimeNanos();
  absl::MutexLock lock(&mutex_);
  Slot* const slot = Find(id);
  if (slot == nullptr || slot->state == FlightState::kCompleted) return;
  slot->state = FlightState::kCompleted;
  slot->completed_ns = now;
}

int64_t FlightRecorder::noted() const {
  absl::MutexLock lock(&mutex_);
  return next_;
}

void FlightRecorder::SetStep(int64_t step) {
  absl::MutexLock lock(&mutex_);
  step_ = step;
}

FlightEntry FlightRecorder::MakeEntry(const Slot& slot, int group) {
  FlightEntry entry;
  entry.id = slot.id;
  entry.kind = slot.kind;
  entry.operation = slot.name;
  entry.group = group;
  entry.sequence = slot.sequence;
  if (slot.peer >= 0) {
    entry.peer = slot.group == nullptr
                     ? slot.peer
                     : slot.group->facts_.ranks[static_cast<size_t>(slot.peer)];
  }
  entry.tag = slot.tag;
  entry.dtype = slot.dtype;
  entry.sizes.assign(slot.sizes, slot.sizes + slot.dimensions);
  entry.what = slot.purpose.what;
  entry.index = slot.purpose.index;
  entry.stage = slot.purpose.stage;
  entry.microbatch = slot.purpose.microbatch;
  entry.step = slot.step;
  entry.state = slot.state;
  entry.scheduled_ns = slot.scheduled_ns;
  entry.started_ns = slot.started_ns;
  entry.awaited_ns = slot.awaited_ns;
  entry.completed_ns = slot.completed_ns;
  return entry;
}

bool FlightRecorder::Read(FlightDump* dump) {
  if (!LockWithin(mutex_, absl::Seconds(1))) return false;
  dump->groups.clear();
  dump->entries.clear();
  std::map<const FlightGroup*, int> numbers;
  const auto size = static_cast<Id>(ring_.size());
  for (Id id = std::max<Id>(0, next_ - size); id < next_; ++id) {
    const Slot* const found = Find(id);
    if (found == nullptr) continue;  // of another capacity's ring
    const Slot& slot = *found;
    int group = -1;
    if (slot.group != nullptr) {
      const auto [at, is_new] = numbers.emplace(
          slot.group.get(), static_cast<int>(dump->groups.size()));
      if (is_new) dump->groups.push_back(slot.group->facts_);
      group = at->second;
    }
    dump->entries.push_back(MakeEntry(slot, group));
  }
  mutex_.Unlock();
  return true;
}

}  // namespace tandem
