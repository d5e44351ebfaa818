// Allocation recording: what memory a call takes and gives back, in order.

#ifndef TANDEM_CORE_SIM_IMAGINED_RECORDING_H_
#define TANDEM_CORE_SIM_IMAGINED_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tandem {
namespace sim {

struct AllocationEvent {
  int block = 0;       // which one of the recording's, from 0
  bool taken = false;  // else given back
  size_t bytes = 0;
};

// While it lives, what the calling thread allocates on the host and on the meta
// device is written down instead of charged to a device, and so is what it
// gives back of that. One a thread at a time. Blocks may outlive it.
class AllocationRecording {
 public:
  AllocationRecording();
  ~AllocationRecording();
  AllocationRecording(const AllocationRecording&) = delete;
  AllocationRecording& operator=(const AllocationRecording&) = delete;

  // The calling thread's; null: none.
  static AllocationRecording* Current();

  void NoteTaken(const void* block, size_t bytes);
  // One that was taken before it is no affair of the recording's.
  void NoteGivenBack(const void* block);

  // Of one that has not been given back.
  std::optional<int> Find(const void* block) const;
  const std::vector<AllocationEvent>& events() const { return events_; }

 private:
  std::vector<AllocationEvent> events_;
  std::unordered_map<const void*, int> held_;
  int blocks_ = 0;
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_RECORDING_H_
