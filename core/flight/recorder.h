// Flight recorder: a ring of the last collectives, messages and stage actions
// of this process, for whoever asks after a hang. PyTorch's FlightRecorder,
// without stack traces and for every backend.

#ifndef TANDEM_CORE_FLIGHT_RECORDER_H_
#define TANDEM_CORE_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/flight/dump.h"

namespace tandem {

// Purpose of a collective, a message or an action in the flight record: which
// bucket, microbatch and stage, as numbers, so that noting it allocates
// nothing.

struct FlightPurpose {
  // "bucket", "activations", "loss". Text that is never freed.
  const char* what = "";
  int index = -1;  // of the bucket; -1, here and below: none
  int stage = -1;
  int microbatch = -1;
};

// What the calling thread starts until the end of the block is for that, unless
// a scope inside says otherwise. Costs two stores.
//
//   const FlightPurposeScope scope({"bucket", 3});
class FlightPurposeScope {
 public:
  explicit FlightPurposeScope(const FlightPurpose& purpose);
  ~FlightPurposeScope();
  FlightPurposeScope(const FlightPurposeScope&) = delete;
  FlightPurposeScope& operator=(const FlightPurposeScope&) = delete;

  // The innermost one's of this thread; an empty one outside of all.
  static const FlightPurpose& Current();

 private:
  const FlightPurpose before_;
};

// What is about to start. Texts are never freed, so that none is copied.
struct FlightOperation {
  FlightKind kind = FlightKind::kCollective;
  const char* name = "";
  int peer = -1;  // of a message, or the root: its rank in the group
  int tag = 0;
  const char* dtype = "";
  absl::Span<const int64_t> sizes;
};

// A group of ranks, for the recorders that its operations are noted in.
class FlightGroup {
 public:
  // `id` is the same on all ranks of this group, and no other group's; `ranks`
  // are their numbers in the job.
  FlightGroup(std::string name, std::string id, std::vector<int> ranks);

 private:
  friend class FlightRecorder;

  FlightGroupFacts facts_;
  // How many messages there were, by peer, direction and tag.
  absl::flat_hash_map<uint64_t, int64_t> messages_;
};

// Thread-safe. Noting something takes a lock for some tens of nanoseconds and
// allocates nothing, but for a message of a tag that its group has not seen.
class FlightRecorder {
 public:
  static constexpr size_t kCapacity = 2000;  // PyTorch's TORCH_FR_BUFFER_SIZE
  // An entry; numbers that the ring has lost, or that are negative, are taken
  // and do nothing.
  using Id = int64_t;

  // The one that communicators and executors note in.
  static FlightRecorder& OfProcess();

  explicit FlightRecorder(size_t capacity = kCapacity);

  // A ring for another number of entries is made anew: what it holds is
  // forgotten, and what was scheduled before is not noted further. 0: nothing
  // is noted.
  void SetCapacity(size_t capacity);

  // A new entry, for FlightPurposeScope::Current(). `group` is null for an
  // action. `sequence` is that of a collective; messages are counted here.
  Id Schedule(const std::shared_ptr<FlightGroup>& group,
              const FlightOperation& operation, int64_t sequence = 0);
  void Start(Id id);
  // A thread begins to wait for it.
  void Await(Id id);
  void Complete(Id id);

  // How many entries there have been.
  int64_t noted() const;

  // The training step that entries from now on belong to.
  void SetStep(int64_t step);

  // What the ring holds, from old to new, and the groups of which this knows;
  // the rest of the dump is as it was. False when the lock could not be had
  // within a second: whoever has it has died in there.
  bool Read(FlightDump* dump);

 private:
  // Further dimensions are multiplied into the last.
  static constexpr size_t kMostSizes = 6;

  struct Slot {
    Id id = -1;
    std::shared_ptr<FlightGroup> group;
    FlightKind kind = FlightKind::kCollective;
    FlightState state = FlightState::kScheduled;
    const char* name = "";
    const char* dtype = "";
    FlightPurpose purpose;
    int peer = -1;
    int tag = 0;
    int64_t sequence = 0;
    int64_t step = 0;
    size_t dimensions = 0;
    int64_t sizes[kMostSizes];
    int64_t scheduled_ns = 0;
    int64_t started_ns = 0;
    int64_t awaited_ns = 0;
    int64_t completed_ns = 0;
  };

  // Null: the ring has lost it.
  Slot* Find(Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void SetSizes(absl::Span<const int64_t> sizes, Slot* slot);
  int64_t Count(FlightGroup& group, const FlightOperation& operation,
                int64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static FlightEntry MakeEntry(const Slot& slot, int group);

  mutable absl::Mutex mutex_;
  // Not of ring_, which may be made anew: what notes nothing takes no lock.
  std::atomic<bool> notes_;
  std::vector<Slot> ring_ ABSL_GUARDED_BY(mutex_);
  Id next_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Flight entries of one call of a communicator: a collective, or the messages
// of one work.

// In the recorder of the process. A value; one entry, as nearly every call has,
// costs no allocation.
class CallFlights {
 public:
  void Add(FlightRecorder::Id id) {
    if (empty()) {
      first_ = id;
    } else {
      further_.push_back(id);
    }
  }
  bool empty() const { return first_ < 0; }

  void Start() const { Note(&FlightRecorder::Start); }
  void Await() const { Note(&FlightRecorder::Await); }
  void Complete() const { Note(&FlightRecorder::Complete); }

 private:
  void Note(void (FlightRecorder::*note)(FlightRecorder::Id)) const {
    FlightRecorder& recorder = FlightRecorder::OfProcess();
    if (!empty()) (recorder.*note)(first_);
    for (const FlightRecorder::Id each : further_) (recorder.*note)(each);
  }

  FlightRecorder::Id first_ = -1;
  std::vector<FlightRecorder::Id> further_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_FLIGHT_RECORDER_H_
